import { LEAST_INTERVAL_MS } from '#scheduler/schedules/rules.ts';
import type { Schedule } from '../../app/control.ts';
import { durationMs } from '../../app/http/request-options.ts';
import { defineCommand } from '../command.ts';
import { EXIT, Failure } from '../failure.ts';
import { ago, duration } from '../format.ts';
import { readInput } from '../input.ts';

const name = { name: 'name', help: 'name of the schedule', required: true } as const;

export const scheduleList = defineCommand({
  name: 'schedule list',
  summary: 'List the schedules of the tenant',
  byDefault: true,
  examples: [{ line: 'pie schedule', does: 'shows the next times and the last outcomes' }],
  async run({ terminal, signal, connect }) {
    const { client } = await connect();
    const schedules = await client.schedules.list({ signal });
    terminal.value(schedules);
    terminal.table(
      ['NAME', 'FUNCTION', 'TIMES', 'NEXT', 'LAST'],
      schedules.map((schedule) => [
        schedule.name,
        schedule.function,
        timesOf(schedule),
        schedule.suspended === undefined ? (schedule.nextAt ?? '–') : 'suspended',
        schedule.last === null
          ? '–'
          : `${ago(schedule.last.at)}: ${schedule.last.invocation ?? schedule.last.error?.code ?? ''}`,
      ]),
      'There are none. Next: pie schedule create NAME FUNCTION --cron "0 3 * * *"',
    );
    for (const { name, suspended } of schedules)
      if (suspended !== undefined) terminal.print(`${name} is suspended. ${suspended}`);
    return EXIT.ok;
  },
});

export const scheduleCreate = defineCommand({
  name: 'schedule create',
  summary: 'Invoke a function at set times',
  description:
    'Stores a schedule, or replaces the one with this name. Its invocations are ordinary invocations of the tenant, under the same quotas; each names the schedule.',
  arguments: [name, { name: 'function', help: 'name of the function, or name@version', required: true }],
  options: [
    { flags: '--cron <pattern>', help: 'minute, hour, day, month and day of the week: "0 3 * * *"' },
    { flags: '--timezone <zone>', help: 'time zone of the pattern (default: UTC)' },
    {
      flags: '--every <time>',
      help: 'interval of at least a minute: 15m, 6h; the first invocation starts at once',
      parse: parseInterval,
    },
    { flags: '-i, --input <json>', help: 'input: JSON, @file, or - for standard input (default: {})' },
  ],
  examples: [
    {
      line: `pie schedule create nightly text-completion --cron "0 3 * * *" --timezone Europe/Berlin --input '{"prompt":"Good night"}'`,
      does: 'runs it at three every night',
    },
    { line: 'pie schedule create check probe --every 15m', does: 'runs it now and every 15 minutes' },
  ],
  async run({ args: [schedule, fn], options, terminal, signal, connect }) {
    const { cron, timezone, every: everyMs } = options;
    if ((cron === undefined) === (everyMs === undefined))
      throw new Failure('A schedule needs exactly one of --cron and --every.', {
        advice: 'For example: --cron "0 3 * * *", or --every 15m.',
      });
    if (everyMs !== undefined && timezone !== undefined)
      throw new Failure('A schedule with --every has no --timezone.', {
        why: 'An interval counts from the first invocation, in every time zone alike.',
        advice: 'Leave out --timezone, or give a pattern instead of the interval: --cron "0 3 * * *".',
      });
    const input = readInput(options.input);
    const { client } = await connect();
    const settings = { function: fn, input, cron, timezone, everyMs };
    const storedSchedule = await client.schedules.put(schedule, settings, { signal });
    terminal.value(storedSchedule);
    const next =
      storedSchedule.nextAt === null ? 'next time unknown until a gateway starts' : `next at ${storedSchedule.nextAt}`;
    terminal.print(`${storedSchedule.name}: ${storedSchedule.function} ${timesOf(storedSchedule)}; ${next}`);
    return EXIT.ok;
  },
});

export const scheduleResume = defineCommand({
  name: 'schedule resume',
  summary: 'Resume a suspended schedule',
  description:
    'The platform suspends a schedule after three gateways in a row died while they made its invocation. pie schedule shows the reason.',
  arguments: [name],
  examples: [{ line: 'pie schedule resume nightly', does: 'fires at its times again' }],
  async run({ args: [schedule], terminal, signal, connect }) {
    const { client } = await connect();
    const resumed = await client.schedules.resume(schedule, { signal });
    terminal.value(resumed);
    terminal.print(`Resumed ${schedule}: ${resumed.function} ${timesOf(resumed)}; next at ${resumed.nextAt ?? '–'}`);
    return EXIT.ok;
  },
});

export const scheduleRemove = defineCommand({
  name: 'schedule remove',
  summary: 'Remove a schedule',
  arguments: [name],
  examples: [{ line: 'pie schedule remove nightly', does: 'removes it; running invocations continue' }],
  async run({ args: [schedule], terminal, signal, connect }) {
    const { client } = await connect();
    await client.schedules.remove(schedule, { signal });
    terminal.value({ removed: schedule });
    terminal.print(`Removed ${schedule}.`);
    return EXIT.ok;
  },
});

function timesOf({ cron, timezone, everyMs }: Schedule): string {
  return everyMs === undefined ? `at ${cron} ${timezone}` : `every ${duration(everyMs)}`;
}

function parseInterval(value: string): number {
  const ms = durationMs(value);
  if (ms !== null && ms >= LEAST_INTERVAL_MS) return ms;
  throw new Failure('It must be at least a minute: seconds (900), or a number with a unit: 15m, 6h, 1d.');
}
