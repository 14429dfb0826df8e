import type { Encoder } from '../backends/encoder.ts';
import { LatencyProfile } from './latency-profile.ts';

/** Tokens of a measured text. */
const TEXT_TOKENS = 16;
/** Tokens of the measured batches. */
const SIZES = [16, 64, 256, 1024, 4096];
/** Runs of each size. The fastest one counts, because other work on the machine slows some runs. */
const RUNS = 3;
/** Measuring ends after the first size whose batch takes longer than this, ms. */
const ENOUGH_MS = 12;

/** Measures batches of an encoder before it serves, so that its first batches have a fitting size. */
export async function measured(encoder: Encoder): Promise<LatencyProfile> {
  const profile = new LatencyProfile();
  const length = Math.min(TEXT_TOKENS, encoder.config.contextLength);
  const text = { tokens: new Uint32Array(length), types: new Uint8Array(length) };
  for (const size of SIZES) {
    const texts = new Array<typeof text>(Math.ceil(size / length)).fill(text);
    // The first run of a size allocates its memory.
    await encoder.encode(texts);
    let ms = Number.POSITIVE_INFINITY;
    for (let run = 0; run < RUNS; run++) {
      const startedMs = performance.now();
      await encoder.encode(texts);
      ms = Math.min(ms, performance.now() - startedMs);
    }
    profile.note(texts.length * length, ms);
    if (ms > ENOUGH_MS) break;
  }
  return profile;
}
