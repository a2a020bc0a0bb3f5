"""Run every benchmark."""

from benchmarks import deep, features, layer, linear, retrieval
from benchmarks.timing import machine

print(machine())
for benchmark in (linear, layer, deep, retrieval, features):
    benchmark.main()
