"""PyTorch on the same card with the same shapes: the peer that the backend is compared with.

Answers commands on standard input, one per line, with one line of JSON each, like `cuda-harness bench`, so that both can be measured in turn:
  device | copy megabytes=4096 | matmul size=8192 | load shape=8B | decode batch=32 context=1024 steps=64 | prefill tokens=8192 times=5 | unload | quit

Random bf16 weights at the true shape. Decode is one CUDA graph per step over a dense, preallocated cache. Several ways to call
scaled_dot_product_attention are tried and the fastest counts, which favours the peer. `compile=1` passes each layer through
torch.compile first.
"""

import json
import sys
import time
import traceback

import torch
import torch.nn.functional as F

try:
    from torch.nn.attention import SDPBackend, sdpa_kernel
except ImportError:  # An older PyTorch, which chooses the implementation itself.
    SDPBackend = None
    sdpa_kernel = None

SHAPES = {
    "1B": dict(hidden=2048, intermediate=8192, layers=16, heads=32, kv_heads=8, head_dim=64, vocabulary=128256, tied=True),
    "3B": dict(hidden=3072, intermediate=8192, layers=28, heads=24, kv_heads=8, head_dim=128, vocabulary=128256, tied=True),
    "8B": dict(hidden=4096, intermediate=14336, layers=32, heads=32, kv_heads=8, head_dim=128, vocabulary=128256, tied=False),
    "toy": dict(hidden=128, intermediate=256, layers=2, heads=4, kv_heads=2, head_dim=64, vocabulary=512, tied=True),
}
EPSILON = 1e-5
THETA = 5e5
DEVICE = "cuda"
DTYPE = torch.bfloat16
# Implementations that scaled_dot_product_attention may use; None leaves the choice to PyTorch.
BACKENDS = (None, "FLASH_ATTENTION", "CUDNN_ATTENTION")


def quantiles(values):
    ordered = sorted(values)
    at = lambda share: ordered[int(share * (len(ordered) - 1) + 0.5)]
    return dict(median=at(0.5), p10=at(0.1), p90=at(0.9), least=ordered[0], most=ordered[-1], count=len(ordered))


def device_times(work, warm, times):
    """Device milliseconds of each call."""
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(times)]
    for _ in range(warm):
        work()
    torch.cuda.synchronize()
    for began, ended in events:
        began.record()
        work()
        ended.record()
    torch.cuda.synchronize()
    return [began.elapsed_time(ended) for began, ended in events]


def need(size_bytes, what):
    free, _ = torch.cuda.mem_get_info()
    if size_bytes > free * 0.95:
        raise RuntimeError(f"{what} needs {size_bytes / 1e9:.1f} GB, {free / 1e9:.1f} GB are free")


def kernels(name):
    """The attention implementation to allow; None leaves the choice to PyTorch."""
    if sdpa_kernel is None or name is None:
        return None
    return getattr(SDPBackend, name, None)


class Model:
    def __init__(self, name):
        shape = SHAPES[name]
        self.name = name
        self.__dict__.update(shape)
        query, key = self.heads * self.head_dim, self.kv_heads * self.head_dim
        per_layer = self.hidden * (2 * query + 2 * key + 3 * self.intermediate)
        embeddings = self.vocabulary * self.hidden
        need(2 * (per_layer * self.layers + embeddings * (1 if self.tied else 2)), f"the weights of {name}")

        def matrix(rows, columns):
            return torch.empty(rows, columns, device=DEVICE, dtype=DTYPE).normal_(std=self.hidden**-0.5)

        self.embeddings = matrix(self.vocabulary, self.hidden)
        self.head = self.embeddings if self.tied else matrix(self.vocabulary, self.hidden)
        one = lambda: torch.ones(self.hidden, device=DEVICE, dtype=DTYPE)
        self.weights = [
            (
                one(),
                matrix(query + 2 * key, self.hidden),
                matrix(self.hidden, query),
                one(),
                matrix(2 * self.intermediate, self.hidden),
                matrix(self.hidden, self.intermediate),
            )
            for _ in range(self.layers)
        ]
        self.norm = one()
        half = self.head_dim // 2
        self.frequencies = THETA ** (-torch.arange(half, device=DEVICE, dtype=torch.float64) / half)
        self.graphs = {}
        self.best_prefill = None

    def rotation(self, positions):
        angles = positions.to(torch.float64)[:, None] * self.frequencies
        angles = torch.cat([angles, angles], dim=-1)
        return angles.cos().to(DTYPE), angles.sin().to(DTYPE)

    def rotate(self, x, cosine, sine):
        half = self.head_dim // 2
        turned = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
        return x * cosine + turned * sine

    def layer(self, x, weights, keys, values, cosine, sine, position, length, way):
        """x: batch × 1 × hidden (decode, `position` is where keys go) or 1 × tokens × hidden (prefill)."""
        norm, qkv, out, post_norm, gate_up, down = weights
        batch, rows, _ = x.shape
        heads, kv_heads, head_dim = self.heads, self.kv_heads, self.head_dim
        joint = F.linear(F.rms_norm(x, (self.hidden,), norm, EPSILON), qkv)
        query, key, value = joint.split([heads * head_dim, kv_heads * head_dim, kv_heads * head_dim], dim=-1)
        query = self.rotate(query.view(batch, rows, heads, head_dim).transpose(1, 2), cosine, sine)
        key = self.rotate(key.view(batch, rows, kv_heads, head_dim).transpose(1, 2), cosine, sine)
        value = value.view(batch, rows, kv_heads, head_dim).transpose(1, 2)
        if rows == 1:
            keys[:, :, position : position + 1].copy_(key)
            values[:, :, position : position + 1].copy_(value)
            seen_keys, seen_values = keys[:, :, :length], values[:, :, :length]
            if way == "grouped":
                # The heads of a group become queries of one sequence, so that its keys are read once.
                grouped = query.reshape(batch, kv_heads, heads // kv_heads, head_dim)
                attended = F.scaled_dot_product_attention(grouped, seen_keys, seen_values).reshape(batch, heads, 1, head_dim)
            else:
                attended = F.scaled_dot_product_attention(query, seen_keys, seen_values, enable_gqa=True)
        else:
            keys[:, :, :rows].copy_(key)
            values[:, :, :rows].copy_(value)
            attended = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        x = x + F.linear(attended.transpose(1, 2).reshape(batch, rows, heads * head_dim), out)
        gate, up = F.linear(F.rms_norm(x, (self.hidden,), post_norm, EPSILON), gate_up).chunk(2, dim=-1)
        return x + F.linear(F.silu(gate) * up, down)

    def caches(self, batch, length):
        width = batch * self.kv_heads * length * self.head_dim
        need(2 * 2 * width * self.layers, "the cache")
        make = lambda: torch.empty(batch, self.kv_heads, length, self.head_dim, device=DEVICE, dtype=DTYPE).normal_()
        return [(make(), make()) for _ in range(self.layers)]

    @torch.inference_mode()
    def decode_graph(self, batch, context, way, backend, caches, compiled):
        """One decode step as a CUDA graph that attends to `context` keys and its own. Its output tokens are the next replay's input."""
        tokens = torch.arange(batch, device=DEVICE) * 17 % self.vocabulary
        cosine, sine = self.rotation(torch.tensor([context], device=DEVICE))
        layer = torch.compile(self.layer, dynamic=False) if compiled else self.layer

        def step():
            x = F.embedding(tokens, self.embeddings)[:, None]
            for weights, (keys, values) in zip(self.weights, caches):
                x = layer(x, weights, keys, values, cosine, sine, context, context + 1, way)
            logits = F.linear(F.rms_norm(x[:, -1], (self.hidden,), self.norm, EPSILON), self.head)
            tokens.copy_(logits.argmax(dim=-1))

        def guarded():
            allowed = kernels(backend)
            if allowed is None:
                return step()
            with sdpa_kernel([allowed]):
                return step()

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                guarded()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            guarded()
        return graph

    def best_graph(self, batch, context, compiled):
        """The fastest attention for this batch; cached, so that later rounds only measure."""
        key = (batch, context, compiled)
        if key in self.graphs:
            return self.graphs[key]
        caches = self.caches(batch, context + 8)
        tried, best = {}, None
        for way, backend in [(way, backend) for backend in BACKENDS for way in ("grouped", "gqa")]:
            label = f"{way}, {backend or 'default'}"
            try:
                graph = self.decode_graph(batch, context, way, backend, caches, compiled)
                milliseconds = quantiles(device_times(graph.replay, 3, 10))["median"]
                tried[label] = milliseconds
                if best is None or milliseconds < best[2]:
                    best = (graph, label, milliseconds)
            except Exception as error:  # Not supported by this card or PyTorch.
                tried[label] = f"{type(error).__name__}: {str(error)[:120]}"
                torch.cuda.synchronize()
        if best is None:
            raise RuntimeError(f"no way to decode: {tried}")
        self.graphs[key] = (best[0], best[1], tried, caches)
        return self.graphs[key]

    def decode(self, batch, context, steps, compiled):
        graph, label, tried, _ = self.best_graph(batch, context, compiled)
        milliseconds = device_times(graph.replay, 6, steps)
        began = time.perf_counter()
        for _ in range(steps):
            graph.replay()
        torch.cuda.synchronize()
        wall = (time.perf_counter() - began) * 1e3 / steps
        found = dict(deviceMs=quantiles(milliseconds), wallMs=wall, way=label, tried=tried)
        return dict(shape=self.name, batch=batch, context=context, compiled=compiled, **found)

    @torch.inference_mode()
    def prefill(self, tokens, times):
        caches = self.caches(1, tokens)
        inputs = (torch.arange(tokens, device=DEVICE) * 31 + 7) % self.vocabulary
        cosine, sine = self.rotation(torch.arange(tokens, device=DEVICE))

        def run():
            x = F.embedding(inputs, self.embeddings)[None]
            for weights, (keys, values) in zip(self.weights, caches):
                x = self.layer(x, weights, keys, values, cosine, sine, 0, tokens, "gqa")
            return F.linear(F.rms_norm(x[:, -1], (self.hidden,), self.norm, EPSILON), self.head).argmax(dim=-1)

        def with_backend(backend):
            allowed = kernels(backend)
            if allowed is None:
                return run
            def guarded():
                with sdpa_kernel([allowed]):
                    return run()
            return guarded

        tried = {}
        if self.best_prefill is None:
            for backend in BACKENDS:
                try:
                    tried[backend or "default"] = quantiles(device_times(with_backend(backend), 1, 2))["median"]
                except Exception as error:
                    tried[backend or "default"] = f"{type(error).__name__}: {str(error)[:120]}"
                    torch.cuda.synchronize()
            measured = {name: value for name, value in tried.items() if isinstance(value, float)}
            if not measured:
                raise RuntimeError(f"no way to prefill: {tried}")
            self.best_prefill = min(measured, key=measured.get)
        backend = None if self.best_prefill == "default" else self.best_prefill
        milliseconds = device_times(with_backend(backend), 1, times)
        return dict(shape=self.name, tokens=tokens, deviceMs=quantiles(milliseconds), way=self.best_prefill, tried=tried)


class Peer:
    def __init__(self):
        self.model = None

    def run(self, name, settings):
        number = lambda key, otherwise: int(settings.get(key, otherwise))
        if name == "device":
            properties = torch.cuda.get_device_properties(0)
            return dict(name=properties.name, torch=torch.__version__, cuda=torch.version.cuda, multiprocessors=properties.multi_processor_count)
        if name == "copy":
            return self.copy(number("megabytes", 4096), number("times", 10))
        if name == "matmul":
            return self.matmul(number("size", 8192), number("times", 10))
        if name == "load":
            self.unload()
            self.model = Model(settings.get("shape", "8B"))
            torch.cuda.synchronize()
            return dict(shape=self.model.name)
        if name == "unload":
            self.unload()
            return dict(unloaded=True)
        if name in ("decode", "prefill"):
            if self.model is None:
                raise RuntimeError("nothing is loaded")
            if name == "decode":
                return self.model.decode(number("batch", 1), number("context", 1024), number("steps", 64), number("compile", 0) != 0)
            return self.model.prefill(number("tokens", 8192), number("times", 5))
        raise RuntimeError(f'"{name}" is no command')

    def unload(self):
        self.model = None
        torch.cuda.synchronize()
        torch.cuda.empty_cache()

    @staticmethod
    @torch.inference_mode()
    def copy(megabytes, times):
        count = megabytes << 20
        need(2 * count, "the copy")
        source = torch.randint(0, 255, (count,), device=DEVICE, dtype=torch.uint8)
        target = torch.empty_like(source)
        milliseconds = device_times(lambda: target.copy_(source), 2, times)
        result = quantiles(milliseconds)
        del source, target
        torch.cuda.empty_cache()
        return dict(ms=result, bytesPerSecond=2 * count / (1e-3 * result["median"]))

    @staticmethod
    @torch.inference_mode()
    def matmul(size, times):
        a = torch.randn(size, size, device=DEVICE, dtype=DTYPE)
        b = torch.randn(size, size, device=DEVICE, dtype=DTYPE)
        out = torch.empty_like(a)
        ways = {"x · Wᵀ": lambda: torch.mm(a, b.t(), out=out), "x · W": lambda: torch.mm(a, b, out=out)}
        rates = {}
        for label, work in ways.items():
            rates[label] = 2 * size**3 / (1e-3 * quantiles(device_times(work, 3, times))["median"])
        del a, b, out
        torch.cuda.empty_cache()
        return dict(size=size, flopsPerSecond=max(rates.values()), ways=rates)


def main():
    torch.set_grad_enabled(False)
    peer = Peer()
    for line in sys.stdin:
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if words[0] == "quit":
            break
        began = time.perf_counter()
        answer = dict(command=line.strip())
        try:
            answer["result"] = peer.run(words[0], dict(word.split("=", 1) for word in words[1:]))
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            answer["error"] = f"{type(error).__name__}: {error}"
            try:
                torch.cuda.synchronize()
                torch.cuda.empty_cache()
            except Exception:  # After a device fault every call fails, so bench.py must start a new process.
                answer["lost"] = True
        answer["tookMs"] = (time.perf_counter() - began) * 1e3
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
