"""Run every benchmark."""

from benchmarks import deep, features, layer, linear
from benchmarks.timing import machine

print(machine())
for benchmark in (linear, layer, deep, features):
    benchmark.main()
