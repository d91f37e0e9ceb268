"""How long torch's kernels take: the one clock for all peers, by events around a CUDA graph, as our kernels are timed."""

import statistics
from collections.abc import Callable


def graph_us(torch, run: Callable[[], object], repeats: int = 20) -> float:
    """Median microseconds of `run`, which launches torch's work, in a graph; called once before to warm up."""
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    times = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e3)
    return round(statistics.median(times), 2)
