"""Run every benchmark."""

from benchmarks import deep, layer, linear
from benchmarks.timing import machine

print(machine())
for benchmark in (linear, layer, deep):
    benchmark.main()
