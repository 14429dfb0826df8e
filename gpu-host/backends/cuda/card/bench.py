"""Measures the backend on this machine's card against the card's limits and against PyTorch, and prints the table of the aims.

  python3 bench.py --harness cuda-harness --out FOLDER [--full] [--toy] [--peer PYTHON | --no-peer] [--seconds N]

The harness and the peer stay alive and answer commands in turn, so that both sides of a ratio are measured close in time; each ratio is measured in
three rounds. Every answer is appended to FOLDER/records.jsonl at once; FOLDER/results.json holds all of them and the aims. Needs only Python's
standard library (the peer needs PyTorch). See README.md.
"""

import argparse
import json
import os
import select
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROUNDS = 3
BATCHES = (1, 8, 32, 128)
CONTEXT = 1024
PREFILL = 4096
# Tokens of a part of a prompt, as the platform batches it, and number of top tokens among which sampled decoding draws.
CHUNK, CANDIDATES = 512, 64
SWAPPED = 1024
# Decoding with a shared prefix: number of sequences, prefix lengths in tokens, further context tokens of each sequence.
SHARERS, PREFIXES, OWN = 32, (4096, 16384), 128
# Largest allowed ratio of a step's time to its floor, by shape and batch; 1.5 for the others.
LIMITS = {("8B", 1): 1.25, ("8B", 32): 1.35, ("1B", 1): 1.35}
# Seconds within which a program must answer, by command; 60 by default.
PATIENCE = dict(load=120, linear=120)
# A program that has died this often is not started again.
MOST_DEATHS = 5


class Program:
    """A child process that answers lines with lines. One that dies or hangs is restarted for the next command, with the same model loaded."""

    def __init__(self, name, arguments, log, environment=None):
        self.name, self.arguments, self.environment = name, arguments, environment
        self.log = log
        self.child = None
        self.pending = b""
        self.dead = 0
        self.loaded = None

    def start(self):
        self.pending = b""
        self.child = subprocess.Popen(self.arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, env=self.environment)

    def stop(self):
        if self.child is None:
            return
        self.child.kill()
        self.child.wait()
        self.child = None

    def ask(self, command, seconds):
        if self.child is None:
            try:
                self.start()
            except OSError as error:
                self.dead = MOST_DEATHS
                return dict(command=command, error=f"{self.name} does not start: {error}")
            if self.loaded and not command.startswith(("load", "unload")) and needs_model(command):
                again = self.exchange(self.loaded, PATIENCE["load"])
                if "error" in again:
                    return dict(command=command, error=f"loading again: {again['error']}")
        if command.startswith("load"):
            self.loaded = command
        elif command.startswith("unload"):
            self.loaded = None
        return self.exchange(command, seconds)

    def exchange(self, command, seconds):
        try:
            self.child.stdin.write((command + "\n").encode())
            self.child.stdin.flush()
            answer = json.loads(self.line(seconds))
        except (OSError, EOFError, TimeoutError, ValueError) as error:
            self.dead += 1
            code = self.child.poll()
            self.stop()
            return dict(command=command, error=f"{type(error).__name__} ({'still running' if code is None else f'exit {code}'}): {error}")
        if answer.pop("lost", False):
            # The device is lost to that process; the next command starts a new one.
            self.dead += 1
            self.stop()
        return answer

    def line(self, seconds):
        end = time.monotonic() + seconds
        while b"\n" not in self.pending:
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"no answer within {seconds} s")
            ready, _, _ = select.select([self.child.stdout], [], [], left)
            if not ready:
                continue
            more = os.read(self.child.stdout.fileno(), 1 << 16)
            if not more:
                raise EOFError("it ended")
            self.pending += more
        line, self.pending = self.pending.split(b"\n", 1)
        return line


def needs_model(command):
    return command.startswith(("decode", "prefill", "swap"))


class Run:
    def __init__(self, options):
        self.options = options
        self.began = time.monotonic()
        self.records = []
        os.makedirs(options.out, exist_ok=True)
        self.file = open(os.path.join(options.out, "records.jsonl"), "w", encoding="utf-8")
        self.harness = Program("harness", [options.harness, "bench"], open(os.path.join(options.out, "harness.log"), "wb"))
        self.peer = None
        if options.peer:
            self.peer = Program("peer", [options.peer, "-u", os.path.join(HERE, "torch_peer.py")], open(os.path.join(options.out, "peer.log"), "wb"))

    def left(self):
        return self.options.seconds - (time.monotonic() - self.began)

    def ask(self, program, command, why="", round_=0, seconds=None):
        """Runs one command and records its answer. Skips it once the time is used up, or if the program has died too often."""
        if program is None or program.dead >= MOST_DEATHS or self.left() < 5:
            return None
        patience = seconds or PATIENCE.get(command.split()[0], 60)
        answer = program.ask(command, min(patience, max(5, self.left())))
        record = dict(who=program.name, round=round_, at=round(time.monotonic() - self.began, 1), **answer)
        if why:
            record["why"] = why
        self.records.append(record)
        self.file.write(json.dumps(record) + "\n")
        self.file.flush()
        short = answer.get("error") or brief(answer["result"])
        print(f"[{record['at']:6.1f} s] {program.name}: {command}: {short}", file=sys.stderr, flush=True)
        return answer.get("result")

    def results(self, who, name, **fields):
        """Records of the answers to commands with this name, where the result or the record has these values in its fields."""
        found = []
        for record in self.records:
            if record["who"] != who or record["command"].split()[0] != name or "result" not in record:
                continue
            if all(record["result"].get(key, record.get(key)) == value for key, value in fields.items()):
                found.append(record)
        return found

    def close(self):
        for program in (self.harness, self.peer):
            if program is not None:
                program.stop()
        self.file.close()


def brief(result):
    """The figures of an answer for the progress log."""
    parts = []
    for key in ("wallMs", "deviceMs", "hostGapMs", "pipelinedMs", "swapInMs"):
        value = result.get(key)
        if isinstance(value, dict) and value.get("median") is not None:
            parts.append(f"{key} {value['median']:.3f}")
    for key in ("bytesPerSecond", "bytesPerSecondIn"):
        if isinstance(result.get(key), float):
            parts.append(f"{result[key] / 1e9:.0f} GB/s")
    for key in ("flopsPerSecond", "cublasFlopsPerSecond", "tilesFlopsPerSecond"):
        if isinstance(result.get(key), float):
            parts.append(f"{key} {result[key] / 1e12:.0f}e12")
    if "stepUs" in result:
        parts.append(f"step {result['stepUs']:.0f} us")
    return ", ".join(parts) or "done"


def measure(run):
    toy, full = run.options.toy, run.options.full
    shapes = ["toy"] if toy else ["8B", "1B", "3B"]
    batches = (1, 2, 4) if toy else BATCHES
    context, prefill, swapped = (40, 64, 32) if toy else (CONTEXT, PREFILL, SWAPPED)
    chunk, candidates = (16, 8) if toy else (CHUNK, CANDIDATES)
    steps = 4 if toy else 64
    sizes = "sequences=4 context=40 room=24 rows=64" if toy else ""
    harness, peer = run.harness, run.peer

    for program in (harness, peer):
        run.ask(program, "device")
        run.ask(program, "copy megabytes=2 times=2" if toy else "copy")
        run.ask(program, "matmul size=64 times=1" if toy else "matmul")

    for shape in shapes:
        run.ask(harness, f"load shape={shape} {sizes}".strip())
        run.ask(peer, f"load shape={shape}")
        for number in range(ROUNDS):
            for batch in batches:
                command = f"decode batch={batch} context={context} steps={steps}"
                # The order alternates, so that neither program always finds the card warm.
                for program in (harness, peer) if number % 2 == 0 else (peer, harness):
                    run.ask(program, command, round_=number)
            if shape in ("8B", "toy"):
                for program in (harness, peer) if number % 2 == 0 else (peer, harness):
                    run.ask(program, f"prefill tokens={prefill} times={2 if toy else 3}", round_=number)
        if shape in ("8B", "toy"):
            for batch in (batches[0], batches[2]):
                run.ask(harness, f"decode batch={batch} context={context} steps={steps} candidates={candidates}", why="sampled")
            run.ask(harness, f"prefill tokens={chunk} times={2 if toy else 10}", why="a chunk of a prompt")
            run.ask(harness, f"swap tokens={swapped} times={1 if toy else 5}")
        run.ask(harness, "unload")
        run.ask(peer, "unload")

    # From here on: a breakdown of a step's time, most important first; commands that do not fit into the time are skipped.
    first = shapes[0]
    for batch in batches:
        run.ask(harness, f"kernels shape={first} batch={batch} context={context}")
    run.ask(harness, f"kernels shape={first} rows={prefill}")
    for batch in batches:
        run.ask(harness, f"kernels shape={first} batch={batch} context={context} kv=fp8", why="kv=fp8")
    # Attention reads a common prefix once for all its sequences (shared=1), or once per sequence (shared=0).
    sharers, prefixes, own = (4, (320,), 40) if toy else (SHARERS, PREFIXES, OWN)
    for prefix in prefixes:
        for shared in (1, 0):
            command = f"kernels shape={first} batch={sharers} context={prefix + own} prefix={prefix} shared={shared}"
            run.ask(harness, command, why=f"prefix={prefix} shared={shared}")
    for prefix in prefixes:
        for shared in (1, 0):
            settings = f"prefix={prefix} shared={shared}"
            rows = "room=24 rows=64" if toy else "room=128"
            run.ask(harness, f"load shape={first} sequences={sharers} context={prefix + own} {settings} {rows}", why=settings)
            run.ask(harness, f"decode batch={sharers} context={prefix + own} steps={steps}", why=settings)
            run.ask(harness, "unload")
    run.ask(harness, f"linear shape={first} most={2 if toy else 128}")
    changes = [(first, settings) for settings in ("dependent=0", "graphs=0", "cublas=0", "precision=int8", "precision=fp8", "precision=int4", "kv=fp8",
                                               "adapters=1", "adapters=8")]
    # Launch overhead and the host's work matter most in a small model.
    if "1B" in shapes:
        changes[:0] = [("1B", "dependent=0"), ("1B", "spin=100000")]
    for shape, settings in changes:
        run.ask(harness, f"load shape={shape} {settings} {sizes}".strip(), why=settings)
        for batch in batches if settings != "cublas=0" else ():
            run.ask(harness, f"decode batch={batch} context={context} steps={steps}", why=settings)
        run.ask(harness, f"prefill tokens={prefill} times={1 if toy else 3}", why=settings)
        run.ask(harness, "unload")
    if not full:
        return
    for shape in shapes[1:]:
        for batch in batches:
            run.ask(harness, f"kernels shape={shape} batch={batch} context={context}")
        run.ask(harness, f"linear shape={shape}")
    for precision in ("int8", "fp8", "int4"):
        run.ask(harness, f"linear shape={first} most={2 if toy else 128} precision={precision}", why=f"precision={precision}")
    run.ask(harness, f"linear shape={first} least={4 if toy else 256} most={4 if toy else 8192}")
    if peer is not None:
        run.ask(peer, f"load shape={first}", why="compile=1")
        for batch in batches:
            run.ask(peer, f"decode batch={batch} context={context} steps={steps} compile=1", why="compile=1", seconds=150)
        run.ask(peer, "unload")


def median(values):
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if len(ordered) % 2 else (ordered[len(ordered) // 2 - 1] + ordered[len(ordered) // 2]) / 2


def spread(values):
    return dict(median=median(values), least=min(values), most=max(values), rounds=len(values))


def peer_over_ours(records, peers):
    """Ratios of the rounds that both programs measured."""
    return [
        peers[record["round"]]["deviceMs"]["median"] / record["result"]["wallMs"]["median"]
        for record in records
        if record["round"] in peers
    ]


def aims(run):
    """Rows of the table of the aims: measured value and aim. `value` is None for missing measurements."""
    rows = []

    def add(measure, aim, value, met, note=""):
        rows.append(dict(measure=measure, aim=aim, value=value, met=None if value is None else met(value), note=note))

    copies = [record["result"]["bytesPerSecond"] for who in ("harness", "peer") for record in run.results(who, "copy")]
    bandwidth = max(copies, default=None)
    products = run.results("harness", "matmul") + run.results("peer", "matmul")
    keys = ("cublasFlopsPerSecond", "tilesFlopsPerSecond", "flopsPerSecond")
    rates = [record["result"].get(key) or 0 for record in products for key in keys]
    dense = max(rates, default=0) or None

    decoded = {}
    for record in run.results("harness", "decode"):
        if "why" not in record:
            decoded.setdefault((record["result"]["shape"], record["result"]["batch"]), []).append(record)
    peers = {}
    for record in run.results("peer", "decode"):
        if "why" not in record:
            peers.setdefault((record["result"]["shape"], record["result"]["batch"]), {})[record["round"]] = record["result"]
    gaps = []
    for (shape, batch), records in sorted(decoded.items()):
        walls = [record["result"]["wallMs"]["median"] for record in records]
        devices = [record["result"]["deviceMs"]["median"] for record in records]
        gaps += [record["result"]["hostGapMs"]["median"] * 1e3 for record in records]
        if bandwidth:
            floor = records[0]["result"]["floorBytes"] / bandwidth * 1e3
            limit = LIMITS.get((shape, batch), 1.5)
            value = spread([wall / floor for wall in walls])
            note = f"{median(walls):.3f} ms a step, floor {floor:.3f} ms; device alone {median(devices) / floor:.2f}"
            add(f"decode {shape}, batch {batch}, over its floor", f"≤ {limit}", value, lambda each, limit=limit: each["median"] <= limit, note)
        other = peers.get((shape, batch), {})
        ratios = peer_over_ours(records, other)
        if ratios:
            way = next(iter(other.values()))["way"]
            note = f"PyTorch {median([each['deviceMs']['median'] for each in other.values()]):.3f} ms ({way})"
            add(f"decode {shape}, batch {batch}, PyTorch's time over ours", "> 1", spread(ratios), lambda each: each["median"] > 1, note)

    prefills = [record for record in run.results("harness", "prefill") if "why" not in record]
    others = {record["round"]: record["result"] for record in run.results("peer", "prefill")}
    if prefills and dense:
        value = spread([record["result"]["flopsPerSecond"] / dense for record in prefills])
        tokens = prefills[0]["result"]["tokens"]
        note = f"{median([record['result']['wallMs']['median'] for record in prefills]):.1f} ms; dense rate {dense / 1e12:.0f} TFLOP/s"
        what = f"prefill {prefills[0]['result']['shape']}, {tokens} tokens, over the dense rate"
        add(what, "≥ 0.65", value, lambda each: each["median"] >= 0.65, note)
    ratios = peer_over_ours(prefills, others)
    if ratios:
        note = f"PyTorch: {next(iter(others.values()))['way']}"
        add("prefill, PyTorch's time over ours", "> 1", spread(ratios), lambda each: each["median"] > 1, note)
    if gaps:
        add("host gap a step, µs (worst point)", "≤ 50", spread(gaps), lambda each: each["most"] <= 50, "a step's wall time less the device's")
    for record in run.results("harness", "swap"):
        result = record["result"]
        value = result["prefill"]["wallMs"]["median"] / result["swapInMs"]["median"]
        note = f"{result['bytes'] / 1e6:.0f} MB in {result['swapInMs']['median']:.2f} ms; prefill {result['prefill']['wallMs']['median']:.2f} ms"
        add(f"prefilling {result['tokens']} tokens over swapping them in", "≥ 3", spread([value]), lambda each: each["median"] >= 3, note)
    return rows, dict(bytesPerSecond=bandwidth, flopsPerSecond=dense)


def checked(out):
    """Rows of the correctness check, if `harness check` wrote check.json to the same folder."""
    rows = []
    try:
        with open(os.path.join(out, "check.json"), encoding="utf-8") as file:
            models = json.load(file)["models"]
    except (OSError, ValueError, KeyError):
        return rows
    for precision, aim in (("bf16", 1e-2), ("float32", 1e-4)):
        own = [model for model in models if model["precision"] == precision]
        if not own:
            continue
        handlers = [dict(handler, model=model["model"]) for model in own for handler in model["handlers"]]
        calls = [dict(cell, model=model["model"]) for model in own for cell in model["cells"]]
        bad = [model["model"] for model in own if "failed" in model]
        for each in handlers + calls:
            if not each["within"]:
                bad.append(", ".join([f"{each['model']}: {each['handler']}", *([each["kind"]] if "kind" in each else [])]))
        number = lambda error: float("inf") if error is None else error
        computed = [each for each in handlers if each["handler"] not in ("draws", "greedy")]
        worst = max(computed, key=lambda each: number(each["error"]), default=None)
        note = f"{len(own)} models, {len(calls)} handlers × kinds of mask"
        if worst:
            note = f"{worst['handler']} of \"{worst['model']}\"; {note}"
        if bad:
            note += f"; not within: {'; '.join(bad[:4])}"
        measure = f"every handler against the reference, {precision}"
        # JSON has no infinity.
        value = spread([worst["error"]]) if worst and worst["error"] is not None else None
        rows.append(dict(measure=measure, aim=f"< {aim:g}", value=value, met=not bad and value is not None, note=note))
        greedy = [each for each in handlers if each["handler"] == "greedy"]
        if greedy:
            # The error is ‖(0 or 1) − 1‖ / ‖1‖, so its square is the share of wrong tokens. None stands for an error that is not finite.
            right = [0 if each["error"] is None else 1 - each["error"] ** 2 for each in greedy]
            note = f"{sum(each['values'] for each in greedy)} tokens; the share that is equal"
            met = all(share == 1 for share in right)
            rows.append(dict(measure=f"greedy tokens of stories15M, {precision}", aim="equal", value=spread([min(right)]), met=met, note=note))
    return rows


def text(value):
    if value is None:
        return "-"
    show = lambda number: f"{number:.1e}" if 0 < abs(number) < 1e-2 else f"{number:.0f}" if abs(number) >= 100 else f"{number:.2f}"
    if value["rounds"] == 1:
        return show(value["median"])
    return f"{show(value['median'])} ({show(value['least'])}–{show(value['most'])})"


def table(rows):
    header = ("measure", "aim", "measured", "", "")
    cells = [(row["measure"], row["aim"], text(row["value"]), {True: "met", False: "MISSED", None: "-"}[row["met"]], row["note"]) for row in rows]
    widths = [max(len(row[column]) for row in [header, *cells]) for column in range(4)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, [*widths, 0])).rstrip() for row in [header, *cells])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--harness", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--toy", action="store_true", help="a tiny shape: for trying the way where there is no card")
    parser.add_argument("--peer", default=sys.executable, help="the Python that has PyTorch")
    parser.add_argument("--no-peer", dest="peer", action="store_const", const=None)
    parser.add_argument("--seconds", type=float, default=0, help="nothing new is begun after so long")
    options = parser.parse_args()
    options.seconds = options.seconds or (420 if options.full else 150)
    # run.sh terminates this script if it overruns its time, for example after a program hung. The script still writes the results that it has.
    def stop(*_):
        # `timeout` signals this process and then its group. The second signal must not interrupt the writing.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.exit(1)

    signal.signal(signal.SIGTERM, stop)
    run = Run(options)
    try:
        measure(run)
    finally:
        rows, ceilings = aims(run)
        rows = checked(options.out) + rows
        if options.toy:  # The toy shapes say nothing about a card.
            rows = [dict(row, met=None) for row in rows]
        results = dict(
            randomWeights=True,
            mode="toy" if options.toy else "full" if options.full else "quick",
            seconds=round(time.monotonic() - run.began, 1),
            ceilings=ceilings,
            aims=rows,
            records=run.records,
        )
        with open(os.path.join(options.out, "results.json"), "w", encoding="utf-8") as file:
            json.dump(results, file)
        # After the results: run.sh waits 5 s, and a program that hangs in the driver takes longer to end.
        run.close()
        failed = [record for record in run.records if "error" in record]
        for record in failed:
            print(f"failed: {record['who']}: {record['command']}: {record['error']}")
        refused = {each["result"]["graphsRefusedWhy"] for each in run.results("harness", "decode") if each["result"].get("graphsRefused")}
        for why in sorted(refused):
            print(f"the driver refused to capture steps, which were launched one by one: {why}")
        print(table(rows))
        print("A toy shape on an emulated device: these times mean nothing." if options.toy else "Random weights at the true shapes.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
