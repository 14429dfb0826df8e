/**
 * Lets the wall clock of a process step: a module that Node imports before the entry point (`--import`). The process `gateway/main.ts` reads its
 * step from the file `gateway` of the folder `PIE_TEST_CLOCKS`, a number and the ms, and repeats the number in its log, because a runtime may
 * write no file. The other processes do the same.
 */
import { readFileSync } from 'node:fs';
import path from 'node:path';

const POLL_MS = 20;
const folder = process.env.PIE_TEST_CLOCKS;
const [, name] = /(?:^|\/)([\w-]+)\/main\.ts$/.exec(process.argv[1] ?? '') ?? [];

if (folder !== undefined && name !== undefined) {
  const file = path.join(folder, name);
  const realNow = Date.now.bind(Date);
  let [heard, stepMs] = ['', 0];
  globalThis.Date = new Proxy(Date, {
    construct: (target, args, newTarget) =>
      Reflect.construct(target, args.length === 0 ? [realNow() + stepMs] : args, newTarget),
  });
  Date.now = () => realNow() + stepMs;
  setInterval(() => {
    let text: string;
    try {
      text = readFileSync(file, 'utf8');
    } catch {
      return;
    }
    if (text === heard) return;
    heard = text;
    const [number, ms] = text.split(' ');
    stepMs = Number(ms);
    console.error(`clock step ${number}.`);
  }, POLL_MS).unref();
}
