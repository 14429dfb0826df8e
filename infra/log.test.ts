import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { test } from 'node:test';
import { logEnding, openLog } from './log.ts';
import type { LogSettings } from './log-settings.ts';

const DEFAULTS: LogSettings = { level: 'info', format: 'text' };

/** A log, and the list in which it collects its records. */
function collect(settings: Partial<LogSettings> = {}) {
  const records: string[] = [];
  const log = openLog('runtime-1', { ...DEFAULTS, ...settings }, (record) => records.push(record));
  return { log, records };
}

/** A record of the JSON format. */
function parsed(record: string | undefined): Record<string, unknown> & { error: Record<string, string> } {
  return JSON.parse(record ?? '');
}

test('text has one line a record: time, level, process, message, fields', () => {
  const { log, records } = collect();
  log.warn({ tenant: 'acme', model: 'a b', pages: 3, note: '', nothing: undefined }, 'the 100 %s of it');
  assert.match(
    records[0] ?? '',
    /^\d{4}-\d\d-\d\dT[\d:.]+Z warn runtime-1: the 100 %s of it tenant=acme model="a b" pages=3 note=""$/,
  );
});

test('a JSON record has the parts of a text record as members', () => {
  const { log, records } = collect({ format: 'json' });
  log.info({ tenant: 'acme', pages: 3 }, 'swapped');
  const { time, ...rest } = parsed(records[0]);
  assert.equal(new Date(String(time)).toISOString(), time);
  assert.deepEqual(rest, { level: 'info', process: 'runtime-1', tenant: 'acme', pages: 3, message: 'swapped' });
  assert.equal(records[0]?.includes('\n'), false);
});

test('records below the level are dropped', () => {
  const levelsAt = (level: LogSettings['level']) => {
    const { log, records } = collect({ level, format: 'json' });
    for (const each of ['info', 'warn', 'error'] as const) log[each]({}, 'x');
    return records.map((record) => parsed(record).level);
  };
  assert.deepEqual(levelsAt('info'), ['info', 'warn', 'error']);
  assert.deepEqual(levelsAt('warn'), ['warn', 'error']);
  assert.deepEqual(levelsAt('error'), ['error']);
});

test('an error shows its stack, its code and its causes, and none of its other members', () => {
  const cause = Object.assign(new TypeError('refused'), { command: { args: ['a secret'] } });
  const error = Object.assign(new Error('lost', { cause }), { code: 'ECONNRESET', input: 'a secret' });
  const text = collect();
  text.log.error({ error, tenant: 'acme' }, 'a call failed');
  const [head, ...stack] = text.records[0]?.split('\n') ?? [];
  assert.match(head ?? '', / error runtime-1: a call failed tenant=acme$/);
  assert.match(stack.join('\n'), /^ {4}Error: lost\n.*\n {4}caused by: TypeError: refused\n/s);
  assert.ok(stack.every((line) => line.startsWith('    ')));
  const json = collect({ format: 'json' });
  json.log.error({ error }, 'a call failed');
  const record = parsed(json.records[0]);
  assert.deepEqual(Object.keys(record.error), ['type', 'message', 'code', 'stack']);
  assert.equal(record.error.code, 'ECONNRESET');
  assert.match(record.error.stack ?? '', /caused by: TypeError: refused/);
  assert.doesNotMatch(text.records.join() + json.records.join(), /secret/);
});

test('a caught value that is no error is a field', () => {
  const { log, records } = collect();
  log.error({ error: 'gone' }, 'a call failed');
  assert.match(records[0] ?? '', / a call failed error=gone$/);
});

test('control characters of strangers are escaped in messages, fields and stacks', () => {
  const hostile = 'a\x1b[2J\x07\x9b31m\u202eb\r\n2026-05-01T12:00:00.000Z error gateway: forged';
  for (const format of ['text', 'json'] as const) {
    const { log, records } = collect({ format });
    log.error({ error: new Error(hostile), tenant: hostile, [hostile]: hostile }, hostile);
    const record = records[0] ?? '';
    // In the text format, the log itself breaks lines, and indents each line after the first.
    assert.doesNotMatch(record.replaceAll('\n    ', ''), /\p{Cc}|\p{Bidi_Control}/u);
    if (format === 'json') assert.equal(parsed(record).tenant, hostile);
  }
});

test('records reach standard error even if the process exits right after them, also under the permission model', () => {
  const program = `
    import { openLog } from '#infra/log.ts';
    const log = openLog('gateway', { level: 'info', format: 'json' });
    for (let i = 0; i < 200; i++) log.error({ i, text: 'x'.repeat(1000) }, 'the last words');
    process.exit(3);`;
  const flags = ['--permission', '--allow-fs-read=*', '--input-type=module'];
  const { status, stderr } = spawnSync(process.execPath, [...flags, '--eval', program], {
    cwd: import.meta.dirname,
    encoding: 'utf8',
  });
  assert.equal(status, 3);
  assert.deepEqual(
    stderr
      .trimEnd()
      .split('\n')
      .map((line) => parsed(line).i),
    Array.from({ length: 200 }, (_, i) => i),
  );
});

test('a slow reader does not hold up the process, and learns how many records are missing', async () => {
  const count = 6000;
  const program = `
    import { openLog } from '#infra/log.ts';
    const log = openLog('gateway', { level: 'info', format: 'json' });
    for (let i = 0; i < ${count}; i++) log.error({ i, text: 'x'.repeat(1000) }, 'many at once');
    console.log('logged');
    process.stdin.resume();`;
  const child = spawn(process.execPath, ['--input-type=module', '--eval', program], { cwd: import.meta.dirname });
  // Nothing reads standard error before the child has logged everything.
  await once(child.stdout, 'data');
  const seen: number[] = [];
  let missing = 0;
  for await (const line of createInterface({ input: child.stderr })) {
    const { i, records } = parsed(line);
    if (typeof i === 'number') seen.push(i);
    if (typeof records !== 'number') continue;
    missing = records;
    child.stdin.end();
  }
  assert.deepEqual(
    seen,
    seen.map((_, i) => i),
  );
  assert.ok(seen.length > 1000 && missing > 0, `${seen.length} records, ${missing} missing`);
  assert.equal(seen.length + missing, count);
});

test('the stack of an error includes the errors that it unites, and causes that are no errors', () => {
  const { log, records } = collect();
  const united = new AggregateError([new TypeError('first'), 'second'], 'both', { cause: { code: 7 } });
  log.error({ error: united }, 'a call failed');
  assert.match(
    records[0] ?? '',
    /AggregateError: both\n.*caused by: TypeError: first\n.*caused by: second\n.*caused by: \{ code: 7 \}$/s,
  );
});

test('the error that ends a process has a stack only when it is a fault of the program', () => {
  const { log, records } = collect();
  logEnding(log, new Error('the model "m": there is no such model'), 'the GPU host ends');
  logEnding(log, new TypeError('x is not a function'), 'the GPU host ends');
  assert.match(records[0] ?? '', /the GPU host ends: the model "m": there is no such model$/);
  assert.match(records[1] ?? '', /the GPU host ends\n {4}TypeError: x is not a function\n {4} +at /);
});
