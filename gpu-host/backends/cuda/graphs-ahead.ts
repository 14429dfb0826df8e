import type { ModelConfig } from '#gpu-host/models/config.ts';
import type { Backend, SequenceInput } from '../backend.ts';

/** Sizes to which the engine pads decode steps; GRAPH_BUCKETS of `native/engine/options.h`. */
const SIZES = [1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128];
/** Tokens wanted of a row: by greedy decoding, by samplers of up to 64 candidates, and by those without a limit. */
const TOP_KS = [1, 64, 256];
/** Steps alternate between two areas of device memory. For each area, the engine launches a step twice directly, then captures its graph. */
const STEPS = 6;
const REPORT_INTERVAL_MS = 2000;

export interface GraphsAheadOptions {
  /** Most sequences of a batch. */
  readonly maxSequences: number;
  /** Time after which no further batch is computed. */
  readonly limitMs: number;
  /** Takes lines about the progress. */
  readonly report: (line: string) => void;
  /** Milliseconds of a clock that never goes back. */
  readonly now: () => number;
}

/**
 * Captures the graphs of decode steps of common sizes, smallest first, before the first user pays for them. The batches keep no keys.
 *
 * @returns number of batch shapes whose graphs were captured
 */
export async function captureGraphsAhead(
  { config, forward }: { readonly config: ModelConfig; readonly forward: Backend['forward'] },
  { maxSequences, limitMs, report, now }: GraphsAheadOptions,
): Promise<number> {
  const topKs = [...new Set(TOP_KS.map((topK) => Math.min(topK, config.vocabularySize)))];
  const shapes = SIZES.filter((size) => size <= maxSequences).flatMap((size) => topKs.map((topK) => ({ size, topK })));
  const startedMs = now();
  let reportedMs = startedMs;
  let captured = 0;
  for (const { size, topK } of shapes) {
    for (let step = 0; step < STEPS; step++) {
      if (now() - startedMs >= limitMs) {
        report(`captured the graphs of ${captured} of ${shapes.length} batch shapes; warm_up_s is over`);
        return captured;
      }
      await forward(decodes(size, topK));
    }
    captured++;
    if (now() - reportedMs < REPORT_INTERVAL_MS || captured === shapes.length) continue;
    reportedMs = now();
    report(`captures graphs: ${captured} of ${shapes.length} batch shapes, up to ${size} sequences`);
  }
  const seconds = ((now() - startedMs) / 1000).toFixed(1);
  report(`captured the graphs of all ${shapes.length} batch shapes in ${seconds} s`);
  return captured;
}

function decodes(count: number, topK: number): SequenceInput[] {
  const [none, zero] = [new Uint32Array(0), Uint32Array.of(0)];
  return Array.from({ length: count }, () => ({
    inputs: { kind: 'tokens', tokens: zero },
    positions: zero,
    context: none,
    mask: 'causal',
    writes: none,
    output: { kind: 'top', rows: 1, topK, tokensOnly: true },
  }));
}
