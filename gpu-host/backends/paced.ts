import { setTimeout as sleep } from 'node:timers/promises';
import type { Backend, SequenceInput } from './backend.ts';
import type { Encoder, EncoderInput } from './encoder.ts';

/** Latency profile of a device: the time of a step by its size, milliseconds. `main.ts` passes a `PaceEntry` of `infra`, which only it may import. */
export interface Pace {
  /** Time of a step, whatever its size. */
  readonly stepMs: number;
  /** Time of each input; for an encoder, of each token of its batch, padding included. */
  readonly tokenMs: number;
  /** Time of each sequence, or of each text. */
  readonly sequenceMs: number;
}

/** A clock, and a wait on it. */
export interface PaceClock {
  now(): number;
  wait(ms: number): Promise<unknown>;
}

const CLOCK: PaceClock = { now: () => performance.now(), wait: (ms) => sleep(ms) };

/** Time of a step with this many inputs and sequences. */
const paceMs = ({ stepMs, tokenMs, sequenceMs }: Pace, tokens: number, sequences: number): number =>
  stepMs + tokens * tokenMs + sequences * sequenceMs;

/**
 * A backend whose steps take the time of another device, for benchmarks of schedules: `inner` computes each step, and the backend then waits for
 * the rest of the time. A step that `inner` computes more slowly takes its own time. The backend stands for a device of its own, named after
 * `model`.
 */
export function pacedBackend(inner: Backend, model: string, pace: Pace, clock = CLOCK): Backend {
  const paced = <T>(tokens: number, sequences: number, step: () => Promise<T>): Promise<T> =>
    atPace(clock, paceMs(pace, tokens, sequences), step);
  const overrides: Partial<Backend> = {
    device: { name: `paced ${model}` },
    // A step ahead would begin before the previous one has taken its time.
    ahead: false,
    forward: (batch: readonly SequenceInput[]) =>
      paced(
        batch.reduce((sum, { positions }) => sum + positions.length, 0),
        batch.length,
        () => inner.forward(batch),
      ),
    project: (states, count, topK) => paced(count, count, () => inner.project(states, count, topK)),
    score: (states, count, tokens) => paced(count, count, () => inner.score(states, count, tokens)),
  };
  return new Proxy(inner, {
    get(target, key) {
      if (key in overrides) return Reflect.get(overrides, key);
      const value: unknown = Reflect.get(target, key);
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
}

/** An encoder in the manner of {@link pacedBackend}. */
export function pacedEncoder(inner: Encoder, pace: Pace, clock = CLOCK): Encoder {
  return {
    config: inner.config,
    encode(inputs: readonly EncoderInput[]) {
      const width = inputs.reduce((most, { tokens }) => Math.max(most, tokens.length), 0);
      return atPace(clock, paceMs(pace, width * inputs.length, inputs.length), () => inner.encode(inputs));
    },
    dispose: () => inner.dispose(),
  };
}

async function atPace<T>(clock: PaceClock, ms: number, step: () => Promise<T>): Promise<T> {
  const startMs = clock.now();
  try {
    return await step();
  } finally {
    const remainingMs = startMs + ms - clock.now();
    if (remainingMs > 0) await clock.wait(remainingMs);
  }
}
