import assert from 'node:assert/strict';
import { RUNTIME } from '#infra/runtimes.ts';
import { deployWith } from '#test/harness/deploy.ts';
import { numberOf, type StreamEvent } from '#test/harness/events.ts';
import { Platform, type StartOptions } from '#test/harness/platform.ts';
import { Random } from '../harness/random.ts';
import { checkEnded, startCount, type Watched, watch } from './invocations.ts';

/** The runtime has fewer slots than invocations, so that some are queued when it dies. */
const CONFIG = '[runtime]\nconcurrency = 4\n';
const INVOCATIONS = 6;

/** Phases of the first invocation in which the test kills the runtime. */
export const PHASES = ['submitted', 'started', 'prefill', 'decoding', 'listening', 'child', 'ending'] as const;
export type Phase = (typeof PHASES)[number];

export const phaseOf = (seed: number): Phase => PHASES[seed % PHASES.length] ?? 'decoding';

export interface KillRun {
  readonly seed: number;
  readonly phase: Phase;
  /** End of each invocation of the run: `result`, or the code of an error. */
  readonly endings: readonly string[];
  /** Invocations that lost an attempt: they ended with `runtime-lost` or began again. */
  readonly hit: number;
  /** Time from the kill to each `runtime-lost`, ms. */
  readonly knownAfterMs: readonly number[];
}

/** Starts a platform for {@link killRun}. */
export async function startPlatform(options: Pick<StartOptions, 'home' | 'keepHome'> = {}): Promise<Platform> {
  const platform = await Platform.start({ ...options, functions: false, config: CONFIG });
  await deployWith(platform, 'counted', {});
  await deployWith(platform, 'counted', { name: 'counted-again', restartable: true });
  return platform;
}

/** Starts some invocations, kills the runtime in a phase of the first, and checks how all of them end. */
export async function killRun(platform: Platform, seed: number): Promise<KillRun> {
  const random = new Random(seed);
  const phase = phaseOf(seed);
  const delayMs = random.integer(0, 12);
  const tokens = random.integer(24, 64);
  const killAfterTokens = random.integer(1, tokens - 2);

  const restarted = platform.restarted(RUNTIME);
  let killedAt = 0;
  let isKillScheduled = false;
  const kill = () => {
    if (isKillScheduled) return;
    isKillScheduled = true;
    setTimeout(() => {
      killedAt = Date.now();
      process.kill(platform.pid(RUNTIME), 'SIGKILL');
    }, delayMs);
  };
  const onEvent = (event: StreamEvent) => {
    // Event 1 is `start`, and each token is one further event.
    if (phase === 'started' || phase === 'prefill' || phase === 'listening' || phase === 'child') {
      if (event.event === 'start') kill();
    } else if (phase === 'decoding' && numberOf(event) === 1 + killAfterTokens) kill();
    else if (phase === 'ending' && numberOf(event) === 1 + tokens) kill();
  };
  const watched: Watched[] = [];
  for (let i = 0; i < INVOCATIONS; i++) {
    const restartable = i % 2 === 1;
    const input = {
      mark: `run-${seed}-${i}`,
      tokens,
      context: phase === 'prefill' ? 160 : 8,
      ...(i === 0 && { child: phase === 'child' }),
      ...(i === 0 && phase === 'listening' && { listenAt: 0 }),
    };
    watched.push(await watch(platform, input, { restartable, ...(i === 0 && { onEvent }) }));
  }
  if (phase === 'submitted') kill();
  await restarted;
  await Promise.all(watched.map(({ ended }) => ended));

  const endings: string[] = [];
  for (const each of watched) endings.push(await checkEnded(platform, each));
  const knownAfterMs = watched
    .filter((_, i) => endings[i] === 'runtime-lost')
    .map(({ arrivalsMs }) => (arrivalsMs.at(-1) ?? 0) - killedAt);
  for (const [i, ending] of endings.entries()) {
    // Restartable invocations must succeed; only the others may end with `runtime-lost`.
    const allowedEndings = watched[i]?.restartable ? ['result'] : ['result', 'runtime-lost'];
    assert.ok(allowedEndings.includes(ending), `seed ${seed}, ${phase}, invocation ${i}: ${ending}`);
  }
  const hit = watched.filter((each, i) => endings[i] === 'runtime-lost' || startCount(each) > 1).length;
  // Invocation 0, which is not restartable, was waiting for its client when the runtime died.
  if (phase === 'listening') assert.equal(endings[0], 'runtime-lost', `seed ${seed}`);
  return { seed, phase, endings, hit, knownAfterMs };
}
