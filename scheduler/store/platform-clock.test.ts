import assert from 'node:assert/strict';
import { beforeEach, describe, it } from 'node:test';
import { PlatformClock } from './platform-clock.ts';

const HOUR_MS = 3_600_000;
const START = Date.UTC(2026, 10, 25, 12);

describe('the clock of the platform', () => {
  let elapsed: number;
  let ownStep: number;
  let redisStep: number;
  let clock: PlatformClock;
  /** Redis answers after 2 ms, and reads its clock in the middle. */
  const hearRedis = () => {
    const askedAt = clock.steadyTime();
    elapsed += 2;
    clock.adjust(START + elapsed - 1 + redisStep, askedAt);
  };
  const assertAt = (time: number, what: string) =>
    assert.ok(Math.abs(clock.now() - time) <= 3, `${what}: ${clock.now() - time}`);
  beforeEach(() => {
    [elapsed, ownStep, redisStep] = [0, 0, 0];
    clock = new PlatformClock({ wall: () => START + elapsed + ownStep, steady: () => 77 + elapsed });
  });

  it("the platform's clock is the process's own before Redis has answered, and while both agree", () => {
    ownStep = -HOUR_MS;
    assert.equal(clock.now(), START - HOUR_MS);
    ownStep = 30;
    hearRedis();
    assert.equal(clock.now(), START + elapsed + 30);
  });

  it("the platform's clock goes on when the process's own clock steps back and forward again", () => {
    hearRedis();
    for (const step of [-HOUR_MS, 0, HOUR_MS, 0]) {
      ownStep = step;
      elapsed += 500;
      assertAt(START + elapsed, 'before Redis is heard');
      hearRedis();
      assertAt(START + elapsed, 'afterwards');
    }
  });

  it('a process whose own clock is wrong from the beginning uses the time of Redis', () => {
    ownStep = -HOUR_MS;
    hearRedis();
    elapsed += 10_000;
    assertAt(START + elapsed, 'it goes on');
    ownStep = 0;
    hearRedis();
    assert.equal(clock.now(), START + elapsed);
  });

  it("the platform's clock goes on when only the clock of Redis steps back and forward again", () => {
    hearRedis();
    for (const step of [-HOUR_MS, 0, HOUR_MS, 0]) {
      redisStep = step;
      elapsed += 500;
      hearRedis();
      assertAt(START + elapsed, `${step}`);
    }
  });

  it("the platform's clock steps when both clocks have stepped", () => {
    hearRedis();
    [ownStep, redisStep] = [-HOUR_MS, -HOUR_MS];
    elapsed += 500;
    hearRedis();
    assertAt(START + elapsed - HOUR_MS, 'back');
    [ownStep, redisStep] = [0, 0];
    hearRedis();
    assertAt(START + elapsed, 'forward');
  });
});
