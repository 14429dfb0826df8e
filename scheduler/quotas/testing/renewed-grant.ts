import type { TokenAsk } from '../grants.ts';

/** One token limit, as the policy sees it. */
export interface TokenRoom {
  readonly limit: number;
  /** Tokens that the present window of the limit has counted. */
  readonly used: number;
  /** Tokens granted to other attempts under this limit. */
  readonly granted: number;
}

/** The tokens that no use and no grant has taken, of the limit that has the fewest. */
export function roomOf(limits: readonly TokenRoom[]): number {
  return Math.min(...limits.map(({ limit, used, granted }) => limit - used - granted));
}

/**
 * The part of the room that an attempt may get above its needs: half of an equal part, so that later attempts find room, too.
 *
 * @param attempts number of attempts with grants, this one included
 */
export function spareOf(room: number, attempts: number): number {
  return Math.max(0, Math.floor(room / (2 * Math.max(1, attempts))));
}

/** A renewed grant. */
interface RenewedGrant {
  /** Tokens beyond those that the attempt has reported. */
  readonly tokens: number;
  /** `waits`: other attempts may return enough for the need. `hopeless`: the need would have no room even if all others returned their grants. */
  readonly outcome: 'granted' | 'waits' | 'hopeless';
}

/**
 * Decides a grant, as `renewGrant` of `limits.lua` does. The need is granted in full or not at all: parts of needs would block each
 * other.
 *
 * @param ask tokens beyond those that the attempt has reported
 * @param limits without this attempt's grant
 */
export function renewedGrant(
  { keep, need, want }: TokenAsk,
  limits: readonly TokenRoom[],
  attempts: number,
): RenewedGrant {
  const room = roomOf(limits) - keep;
  if (need > keep && need - keep > room) {
    const unused = roomOf(limits.map((limit) => ({ ...limit, granted: 0 })));
    return { tokens: keep, outcome: need > unused ? 'hopeless' : 'waits' };
  }
  const spare = spareOf(room - (need - keep), attempts);
  return { tokens: need + Math.min(want - need, spare), outcome: 'granted' };
}
