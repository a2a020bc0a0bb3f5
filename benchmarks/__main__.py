"""Run every benchmark."""

from benchmarks import deep, layer, linear, retrieval
from benchmarks.timing import machine

print(machine())
for benchmark in (linear, layer, deep, retrieval):
    benchmark.main()
