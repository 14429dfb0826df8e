import { Platform } from '#test/harness/platform.ts';
import { inTurn } from '../rounds.ts';
import { inputsOf, PROMPT_TOKENS, receiveAll } from '../streams.ts';
import type { EngineProcess } from './engine-process.ts';
import { LIKE_THE_PEER } from './engines.ts';

export interface PlatformRoundsOptions {
  readonly bits: number;
  readonly clients: number;
  /** Maximum tokens of one invocation. */
  readonly tokens: number;
  readonly rounds: number;
}

export interface PlatformRound {
  /** Tokens a second that the platform's clients received. */
  readonly rate: number;
  /** Tokens a second of the fastest peer. */
  readonly peerRate: number;
}

/**
 * Measures streams through gateway, runtime and GPU host, and as many sequences of each peer without a server, in turn. The first round only warms
 * up.
 */
export async function measureThroughPlatform(
  { bits, clients, tokens, rounds }: PlatformRoundsOptions,
  peers: readonly EngineProcess[],
): Promise<PlatformRound[]> {
  await using platform = await Platform.start({
    functions: ['text-completion'],
    env: { ...LIKE_THE_PEER, PIE_BITS: String(bits), PIE_MODEL: 'stories15m' },
  });
  const results: PlatformRound[] = [];
  for (let round = -1; round < rounds; round++) {
    const [rate, ...peerRates] = await inTurn<number[]>(round + 1, [
      () => receivedPerSecond(platform, clients, tokens),
      ...peers.map((peer) => () => peer.tokensPerSecond(clients, PROMPT_TOKENS, tokens)),
    ]);
    if (rate !== undefined && round >= 0) results.push({ rate, peerRate: Math.max(...peerRates) });
  }
  return results;
}

async function receivedPerSecond(platform: Platform, clients: number, maxTokens: number): Promise<number> {
  const startMs = performance.now();
  const received = await receiveAll(platform, inputsOf(clients, maxTokens));
  const elapsedMs = performance.now() - startMs;
  return (received.reduce((sum, parse) => sum + parse().tokens, 0) * 1000) / elapsedMs;
}
