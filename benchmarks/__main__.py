"""Run every benchmark."""

from benchmarks import layer, linear
from benchmarks.timing import machine

print(machine())
for benchmark in (linear, layer):
    benchmark.main()
