import type { InvocationState } from '../../app/control.ts';
import { EVENT_ID } from '../../app/invocations/event-id.ts';
import type { PieClient } from '../../client/client.ts';
import { PieError } from '../../client/errors.ts';
import { defineCommand } from '../command.ts';
import { confirm } from '../confirm.ts';
import { EXIT, Failure } from '../failure.ts';
import { counted, duration, number } from '../format.ts';
import { follow } from './follow.ts';
import { cells, HEADING, listInvocations } from './ps.ts';

const id = { name: 'invocation', help: 'id of the invocation', required: true } as const;
/** Concurrent cancel requests; the others wait. */
const MAX_CONCURRENT_CANCELS = 16;
const ALL = Number.POSITIVE_INFINITY;

export const attach = defineCommand({
  name: 'attach',
  summary: 'Replay the events of an invocation and follow it',
  description:
    'Replays the events of an invocation and follows it until it ends, even if another client started it. Ctrl-C leaves the invocation running.',
  arguments: [id],
  options: [
    { flags: '--after <event>', help: 'only events after the one with this id or number', parse: eventIdOf },
    { flags: '--logs', help: 'also show the log lines of the function' },
  ],
  examples: [{ line: 'pie attach inv_4f1c', does: 'replays it from the beginning' }],
  async run({ args: [id], options, terminal, signal, connect }) {
    const { client } = await connect();
    const stream = client.events(id, { signal, lastEventId: options.after ?? '0' });
    return follow(stream, { terminal, logs: options.logs, lines: false });
  },
});

export const status = defineCommand({
  name: 'status',
  summary: 'Show the state of an invocation',
  arguments: [id],
  examples: [
    { line: 'pie status inv_4f1c', does: 'shows whether it is queued or running, or how it ended and what it used' },
  ],
  async run({ args: [id], terminal, signal, connect }) {
    const { client } = await connect();
    const state = await client.invocation(id, { signal });
    terminal.value(state);
    terminal.table(HEADING, [cells(state)], '');
    for (const line of details(state)) terminal.print(line);
    if (state.output !== undefined) terminal.print(JSON.stringify(state.output, null, 2));
    return EXIT.ok;
  },
});

function details({
  status,
  parent,
  schedule,
  question,
  notBefore,
  createdAt,
  startedAt,
  endedAt,
  attempts,
  error,
  usage,
  webhook,
}: InvocationState): string[] {
  const lines: string[] = [];
  if (parent !== undefined) lines.push(`child of ${parent}`);
  if (question !== undefined)
    lines.push(
      `asks (question ${question.number}, until ${question.until}): ${question.text}`,
      JSON.stringify(question.schema),
    );
  if (notBefore !== undefined) lines.push(`waits for the delay of its debounce key until ${notBefore}`);
  if (schedule !== undefined) lines.push(`made by the schedule ${schedule}`);
  if (startedAt !== undefined) {
    const waited = duration(Date.parse(startedAt) - Date.parse(createdAt));
    const ran = duration((endedAt === undefined ? Date.now() : Date.parse(endedAt)) - Date.parse(startedAt));
    const stateText =
      status === 'waiting' ? 'waits for an answer now' : `${endedAt === undefined ? 'runs for' : 'ran'} ${ran}`;
    lines.push(`began ${waited} after its submission, ${stateText}`);
    if (attempts > 1) lines.push(`${attempts} attempts: the times are those of the last, the usage is the sum of all`);
  }
  const usageTexts = Object.entries(usage ?? {}).flatMap(([name, amount]) =>
    typeof amount === 'number' && amount > 0 ? [`${name} ${number(amount)}`] : [],
  );
  if (usageTexts.length > 0) lines.push(`used ${usageTexts.join(', ')}`);
  if (webhook !== undefined) {
    const last = webhook.lastError ?? (webhook.lastStatus === null ? null : `status ${webhook.lastStatus}`);
    const next = webhook.nextAt === null ? null : `next at ${webhook.nextAt}`;
    const facts = [webhook.status, counted(webhook.attempts, 'attempt'), last, next].filter((fact) => fact !== null);
    lines.push(`webhook ${webhook.url}: ${facts.join(', ')}`);
  }
  if (error !== undefined) lines.push(`${error.code}: ${error.message}`);
  return lines;
}

export const cancel = defineCommand({
  name: 'cancel',
  summary: 'Cancel invocations',
  description:
    'Cancels the named invocations, or all waiting and running ones of a function or the tenant. Asks before it cancels, unless ids are given.',
  arguments: [{ name: 'invocation', help: 'ids of invocations', required: false, rest: true }],
  options: [
    { flags: '--function <name>', help: 'all waiting and running invocations of this function' },
    { flags: '--all', help: 'all waiting and running invocations of the tenant' },
    { flags: '-y, --yes', help: 'do not ask' },
  ],
  examples: [
    { line: 'pie cancel inv_4f1c', does: 'cancels it and releases everything that it holds' },
    { line: 'pie cancel --function text-completion', does: 'asks, then cancels all invocations of the function' },
  ],
  async run(call) {
    const { args, options, terminal, signal } = call;
    const isSelection = options.all || options.function !== undefined;
    const hasIds = args.length > 0;
    if (isSelection === hasIds)
      throw new Failure(isSelection ? 'Ids cannot be combined with --function or --all.' : 'No invocation was named.', {
        advice: '`pie ps` lists waiting and running invocations.',
      });
    const { client } = await call.connect();
    const ids = isSelection ? await confirmedIds(client, options.function, options.yes, signal) : [...new Set(args)];
    if (ids.length === 0) {
      terminal.note('Nothing waits or runs.');
      return EXIT.ok;
    }
    let failure: unknown;
    const remainingIds = [...ids].reverse();
    const work = async () => {
      for (let next = remainingIds.pop(); next !== undefined; next = remainingIds.pop()) {
        try {
          const state = await client.cancel(next, { signal });
          terminal.value(state);
          terminal.print(`${state.id}  ${endedBefore(state) ? `had ended before: ${state.status}` : 'cancelled'}`);
        } catch (error) {
          if (!(error instanceof PieError) || ids.length === 1) throw error;
          terminal.note(`${next}  ${error.message}`);
          failure ??= error;
        }
      }
    };
    await Promise.all(Array.from({ length: Math.min(MAX_CONCURRENT_CANCELS, ids.length) }, work));
    if (failure !== undefined) throw failure;
    return EXIT.ok;
  },
});

async function confirmedIds(
  client: PieClient,
  name: string | undefined,
  isConfirmed: boolean,
  signal: AbortSignal,
): Promise<string[]> {
  const openInvocations = await listInvocations(client, { function: name, limit: ALL }, signal);
  if (openInvocations.length > 0) {
    const whose = name === undefined ? '' : ` of ${name}`;
    await confirm(`Cancel ${counted(openInvocations.length, 'invocation')}${whose}?`, isConfirmed, signal);
  }
  return openInvocations.map((each) => each.id);
}

function endedBefore({ endedAt, status }: InvocationState): boolean {
  return endedAt !== undefined && status !== 'cancelled';
}

function eventIdOf(value: string): string {
  if (EVENT_ID.test(value)) return value;
  throw new Failure('It must be an event id, `<epoch>-<number>`, or an event number.');
}
