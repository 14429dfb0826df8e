import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { afterLoss, type Conduct, STRIKES, standingOf, WINDOW_MS } from './policy.ts';

interface Loss {
  readonly at: number;
  readonly alone: boolean;
}

/** Losses in order. Some lie just within {@link WINDOW_MS} of the loss before, some just beyond. */
const schedule = fc
  .array(
    fc.record({
      waitMs: fc.oneof(fc.nat(WINDOW_MS * 2), fc.constantFrom(0, 1, WINDOW_MS - 1, WINDOW_MS, WINDOW_MS + 1)),
      alone: fc.boolean(),
    }),
    { maxLength: 30, size: 'max' },
  )
  .map((steps) => {
    let at = 1_800_000_000_000;
    return steps.map(({ waitMs, alone }): Loss => {
      at += waitMs;
      return { at, alone };
    });
  });

const play = (losses: readonly Loss[]): Conduct | null =>
  losses.reduce<Conduct | null>((known, { at, alone }) => afterLoss(known, alone, at), null);

test('a version is quarantined exactly when it is lost twice within ten minutes while it runs alone', () => {
  fc.assert(
    fc.property(schedule, (losses) => {
      const strikesAt = losses.filter((loss) => loss.alone).map(({ at }) => at);
      const secondStrikeAt = strikesAt.find((at, i) => i > 0 && at - (strikesAt[i - 1] ?? 0) < WINDOW_MS);
      assert.equal(play(losses)?.quarantinedAt, secondStrikeAt);
    }),
    { seed: 13, numRuns: 2000 },
  );
});

test('suspicion ends ten minutes after the last loss, a quarantine does not end, and the stored strikes are bounded', () => {
  fc.assert(
    fc.property(schedule, fc.nat(WINDOW_MS * 3), (losses, laterMs) => {
      const conduct = play(losses);
      const last = losses.at(-1)?.at ?? 0;
      const standing = standingOf(conduct, last + laterMs);
      if (conduct === null) assert.equal(standing, 'clear');
      else if (conduct.quarantinedAt !== undefined) assert.equal(standing, 'quarantined');
      else assert.equal(standing, laterMs < WINDOW_MS ? 'suspect' : 'clear');
      assert.ok((conduct?.strikes.length ?? 0) <= STRIKES);
    }),
    { seed: 13, numRuns: 2000 },
  );
});
