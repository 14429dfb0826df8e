/**
 * Lets a test step the wall clock of a process. Node imports this module before the entry point (`--import`). A process `NAME/main.ts` polls
 * the file `NAME` in the folder `PIE_TEST_CLOCKS`, which holds the number of the step and the offset of the clock in ms. The process logs the
 * number to acknowledge the step, because a runtime is not permitted to write files.
 */
import { readFileSync } from 'node:fs';
import path from 'node:path';

const POLL_MS = 20;
const folder = process.env.PIE_TEST_CLOCKS;
const [, name] = /(?:^|\/)([\w-]+)\/main\.ts$/.exec(process.argv[1] ?? '') ?? [];

if (folder !== undefined && name !== undefined) {
  const file = path.join(folder, name);
  const realNow = Date.now.bind(Date);
  let [appliedText, offsetMs] = ['', 0];
  globalThis.Date = new Proxy(Date, {
    construct: (target, args, newTarget) =>
      Reflect.construct(target, args.length === 0 ? [realNow() + offsetMs] : args, newTarget),
  });
  Date.now = () => realNow() + offsetMs;
  setInterval(() => {
    let text: string;
    try {
      text = readFileSync(file, 'utf8');
    } catch {
      return;
    }
    if (text === appliedText) return;
    appliedText = text;
    const [number, ms] = text.split(' ');
    offsetMs = Number(ms);
    console.error(`clock step ${number}.`);
  }, POLL_MS).unref();
}
