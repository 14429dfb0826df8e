import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { residentBytes } from './run.ts';

test('resident memory is the same number of bytes for every page size of the kernel', () => {
  // This status is from a machine with pages of 64 KiB; statm says 640 pages for the same process.
  assert.equal(
    residentBytes('Name:\tnode\nVmHWM:\t   50000 kB\nVmRSS:\t   40960 kB\nRssAnon:\t 100 kB\n'),
    640 * 65_536,
  );
  assert.equal(residentBytes('Name:\tkthreadd\n'), 0);
});

const readResident = () => residentBytes(readFileSync('/proc/self/status', 'utf8'));

test('resident memory grows by what a process fills', { skip: process.platform !== 'linux' && 'no /proc' }, () => {
  const before = readResident();
  const filledBuffer = Buffer.alloc(128 * 2 ** 20, 7);
  const grownMb = (readResident() - before) / 2 ** 20;
  assert.ok(grownMb > 100 && grownMb < 200, `${grownMb} of ${filledBuffer.length / 2 ** 20} MB`);
});
