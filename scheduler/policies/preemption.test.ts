import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { choosePreempted, mayReturn, PROTECTED_TOKENS, type Preemptible, RESERVE_SHIFT } from './preemption.ts';
import { CountedShortfall } from './testing/shortfall.ts';
import { isNewer, type Place } from './victims.ts';

interface Family extends Preemptible {
  readonly name: string;
  readonly pages: number;
}

function oldestOf<F extends Place>(families: readonly F[]): F | undefined {
  return families.toSorted((a, b) => (isNewer(a, b) ? 1 : -1))[0];
}

const family = (name: string, arrival: number, pages: number, protectedSteps = 0): Family => {
  return { name, arrival, order: arrival, pages, protectedSteps };
};

function chosenNames(requester: Family, running: readonly Family[], needed: number): string | undefined {
  const missing = (gone: readonly Family[]): number => gone.reduce((left, { pages }) => left - pages, needed);
  return choosePreempted(requester, running, new CountedShortfall(missing))
    ?.map(({ name }) => name)
    .join(' ');
}

test('the newest families leave, only as many as are needed, and no family older than the requester', () => {
  const [a, b, c, d] = [family('a', 1, 4), family('b', 2, 3), family('c', 3, 0), family('d', 4, 2)];
  assert.equal(chosenNames(a, [b, c, d], 1), 'd');
  assert.equal(chosenNames(a, [b, c, d], 5), 'd b', 'a family without pages stays');
  assert.equal(chosenNames(a, [b, c, d], 6), undefined);
  const [e, f, g] = [family('e', 5, 1), family('f', 6, 1), family('g', 7, 2)];
  assert.equal(chosenNames(a, [e, f, g], 3), 'g f');
  const [h, i, j] = [family('h', 5, 2), family('i', 6, 1), family('j', 7, 1)];
  assert.equal(chosenNames(a, [h, i, j], 3), 'j h', 'of two that are not both needed, the newer one leaves');
  assert.equal(chosenNames(c, [a, b, d], 2), 'd');
  assert.equal(chosenNames(c, [a, b, d], 3), undefined, 'the others are older');
  assert.equal(chosenNames(a, [b, c, d], 0), '');
});

test('a family that has just returned leaves for the oldest alone, and last', () => {
  const [a, b, c, d] = [family('a', 1, 4), family('b', 2, 3), family('c', 3, 3), family('d', 4, 3, 5)];
  assert.equal(chosenNames(b, [a, c, d], 3), 'c');
  assert.equal(chosenNames(b, [a, c, d], 6), undefined);
  assert.equal(chosenNames(a, [b, c, d], 6), 'c b');
  assert.equal(chosenNames(a, [b, c, d], 9), 'c b d');
});

test('a family returns into more room than it needs, unless it is the oldest that can go on', () => {
  const total = 160;
  const reserve = total >> RESERVE_SHIFT;
  assert.equal(mayReturn({ needed: 20, available: 20 + reserve, total, olderRuns: true }), true);
  assert.equal(mayReturn({ needed: 20, available: 19 + reserve, total, olderRuns: true }), false);
  assert.equal(mayReturn({ needed: 158, available: 160, total, olderRuns: true }), true, 'no more than there is');
  assert.equal(mayReturn({ needed: 158, available: 0, total, olderRuns: false }), true);
});

/** A family in a simulated pool: it makes one token per round, `PAGE` tokens fill a page, and it ends when `left` (its tokens to come) is 0. */
interface Living {
  readonly arrival: number;
  readonly order: number;
  protectedSteps: number;
  tokens: number;
  left: number;
  away: boolean;
  /** True when it cannot go on by itself this round. */
  idle: boolean;
}

const PAGE = 4;
const pagesOf = ({ tokens }: Living): number => Math.ceil(tokens / PAGE);

test('in any schedule all families end, the oldest that can go on always advances, and preemptions are rare', () => {
  const lives = fc.array(fc.record({ at: fc.nat({ max: 40 }), left: fc.integer({ min: 1, max: 160 }) }), {
    minLength: 2,
    maxLength: 40,
    size: 'max',
  });
  fc.assert(
    fc.property(lives, fc.integer({ min: 40, max: 90 }), fc.infiniteStream(fc.nat({ max: 9 })), (born, total, dice) => {
      const families = born.map(({ left }, i): Living => {
        return { arrival: i, order: i, protectedSteps: 0, tokens: 0, left, away: false, idle: false };
      });
      let preemptions = 0;
      for (let round = 0; families.some(({ left }) => left > 0); round++) {
        // Three rounds for each token that 40 families of 160 tokens could make.
        assert.ok(round < 40 * 160 * 3, 'the families come to no end');
        const alive = families.filter(({ left }, i) => left > 0 && round >= (born[i]?.at ?? 0));
        for (const one of alive) if (!one.away) one.idle = dice.next().value === 0;
        const holding = () => alive.filter(({ away, idle, tokens, left }) => !away && !idle && tokens > 0 && left > 0);
        const used = () => holding().reduce((sum, one) => sum + pagesOf(one), 0);
        const leave = (one: Living): void => {
          preemptions++;
          one.away = true;
        };
        // Families return, the oldest first, until one may not.
        for (
          let next = oldestOf(alive.filter(({ away }) => away));
          next;
          next = oldestOf(alive.filter(({ away }) => away))
        ) {
          const returning = next;
          const olderRuns = holding().some((other) => isNewer(returning, other));
          const newer = holding().filter((other) => isNewer(other, returning) && other.protectedSteps === 0);
          const available = total - used() + newer.reduce((sum, one) => sum + pagesOf(one), 0);
          if (!mayReturn({ needed: pagesOf(returning) + 1, available, total, olderRuns })) break;
          Object.assign(returning, { away: false, idle: false, protectedSteps: PROTECTED_TOKENS });
        }
        const oldest = oldestOf(alive.filter(({ away, idle }) => !away && !idle));
        const before = oldest?.tokens;
        for (const one of alive.filter(({ away, idle }) => !away && !idle)) {
          if (one.away) continue;
          const others = holding().filter((other) => other !== one);
          const neededPages = pagesOf({ ...one, tokens: one.tokens + 1 });
          const missing = (gone: readonly Living[]): number =>
            neededPages -
            total +
            others.filter((other) => !gone.includes(other)).reduce((sum, other) => sum + pagesOf(other), 0);
          const gone = missing([]) > 0 ? choosePreempted(one, others, new CountedShortfall(missing)) : [];
          for (const other of gone ?? []) {
            const mayGo = other.protectedSteps === 0 || !others.some((older) => isNewer(one, older));
            assert.ok(mayGo, 'a protected family left for one that is not the oldest');
            leave(other);
          }
          if (!gone) {
            assert.notEqual(one, oldest, 'the oldest did not advance');
            leave(one);
            continue;
          }
          one.tokens++;
          one.left--;
          if (one.protectedSteps > 0) one.protectedSteps--;
        }
        if (oldest) assert.equal(oldest.tokens, (before ?? 0) + 1, 'the oldest did not advance');
        assert.ok(used() <= total);
      }
      const tokens = born.reduce((sum, { left }) => sum + left, 0);
      // A family asks for a further page once in PAGE tokens and mostly lacks one page then, so one family leaves. At most 0.17
      // preemptions per token occur in these runs; with returns into any room, up to 7.
      assert.ok(preemptions <= tokens / PAGE, `${preemptions} preemptions for ${tokens} tokens`);
    }),
    { seed: 20261122, numRuns: 300 },
  );
});

test('a family that overtook others is not protected from them, nor from older ones', () => {
  const [oldest, second, third, fourth] = [0, 1, 2, 3].map((arrival) => family(`${arrival}`, arrival, 4)) as [
    Family,
    Family,
    Family,
    Family,
  ];
  const newest: Family = { ...family('newest', 4, 4, 5), overtook: third };
  const missing = (gone: readonly Family[]) => 2 - gone.reduce((sum, { pages }) => sum + pages, 0);
  const gone = (requester: Family) =>
    choosePreempted(requester, [oldest, newest], new CountedShortfall(missing))?.map(({ name }) => name);
  assert.deepEqual([second, third, fourth].map(gone), [['newest'], ['newest'], undefined]);
});
