import type { Command } from '../command.ts';
import { EXIT } from '../failure.ts';
import { ago } from '../format.ts';
import { follow } from './follow.ts';

const id = { name: 'invocation', help: 'id of the invocation', required: true } as const;

/** Takes up the stream of an invocation. */
export const attach: Command = {
  name: 'attach',
  summary: 'Show what an invocation has said, and go on with it',
  description: 'Replays the events of an invocation and goes on until it ends. Ctrl-C leaves the invocation running.',
  arguments: [id],
  options: [
    { flags: '--after <event>', help: 'only events after this number', parse: eventNumber },
    { flags: '--logs', help: 'show the function’s log lines too' },
  ],
  examples: [{ line: 'pie attach inv_4f1c', does: 'from the beginning' }],
  async run({ args, options, terminal, signal, connect }) {
    const { client } = await connect();
    const after = typeof options.after === 'number' ? options.after : 0;
    const stream = client.events(args[0] ?? '', { signal, lastEventId: after });
    return follow(stream, { terminal, logs: options.logs === true, lines: false });
  },
};

/** What has become of an invocation. */
export const status: Command = {
  name: 'status',
  summary: 'Show the state of an invocation',
  arguments: [id],
  examples: [{ line: 'pie status inv_4f1c', does: 'queued, running, or how it ended' }],
  async run({ args, terminal, signal, connect }) {
    const { client } = await connect();
    const state = await client.invocation(args[0] ?? '', { signal });
    terminal.value(state);
    terminal.print(`${state.id}  ${state.status}  ${state.function}@${state.version}  ${ago(state.createdAt)}`);
    if (state.parent !== undefined) terminal.print(`child of ${state.parent}`);
    if (state.error) terminal.print(`${state.error.code}: ${state.error.message}`);
    if (state.output !== undefined) terminal.print(JSON.stringify(state.output, null, 2));
    return EXIT.ok;
  },
};

/** Stops an invocation. */
export const cancel: Command = {
  name: 'cancel',
  summary: 'Cancel an invocation',
  arguments: [id],
  examples: [{ line: 'pie cancel inv_4f1c', does: 'everything that it holds is released' }],
  async run({ args, terminal, signal, connect }) {
    const { client } = await connect();
    const state = await client.cancel(args[0] ?? '', { signal });
    terminal.value(state);
    const ended = state.endedAt !== undefined && state.status !== 'cancelled';
    terminal.print(`${state.id}  ${ended ? `had ended before: ${state.status}` : 'cancelled'}`);
    return EXIT.ok;
  },
};

function eventNumber(text: string): number {
  if (/^\d+$/.test(text)) return Number(text);
  throw new Error('It must be the number of an event.');
}
