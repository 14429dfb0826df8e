import { exactJson } from '../../app/http/exact-json.ts';
import { defineCommand } from '../command.ts';
import { EXIT } from '../failure.ts';
import { follow } from './follow.ts';
import { readInput } from './input.ts';
import { withCancel } from './invoke.ts';

export const replay = defineCommand({
  name: 'replay',
  summary: 'Run the function version of an invocation again',
  description:
    'Invokes the version that an earlier invocation ran, with its input or another one, and streams the output. Ctrl-C cancels the new invocation.',
  arguments: [{ name: 'invocation', help: 'id of the earlier invocation', required: true }],
  options: [
    { flags: '-i, --input <json>', help: 'input instead of the earlier one: JSON, @file, or - for standard input' },
    { flags: '--logs', help: 'also show the log lines of the function' },
    { flags: '--async', help: 'only start the invocation, and print its id' },
  ],
  examples: [
    { line: 'pie replay inv_4f1c', does: 'runs it again' },
    { line: `pie replay inv_4f1c --input '{"prompt":"Once"}'`, does: 'runs the same version with another input' },
  ],
  async run(call) {
    const { options, terminal, signal } = call;
    const [id] = call.args;
    const otherInput = options.input === undefined ? undefined : readInput(options.input);
    const { client } = await call.connect();
    const { function: name, version } = await client.invocation(id, { signal });
    const input = options.input === undefined ? exactJson(await client.inputText(id, { signal })) : otherInput;
    const reference = `${name}@${version}`;
    if (options.async) {
      const state = await client.submit(reference, input, { signal });
      terminal.print(state.id);
      terminal.value(state);
      terminal.note(`Next: pie attach ${state.id}`);
      return EXIT.ok;
    }
    // Do not pass the signal: on Ctrl-C, `withCancel` cancels the invocation, and the stream then reports the invocation's end.
    const stream = await client.invoke(reference, input);
    terminal.note(`${reference} runs as ${stream.id}`);
    return withCancel(client, stream.id, call, async () => {
      // No messages follow. If closing fails, for example because the invocation has ended, the stream still reports the outcome.
      await client.closeSession(stream.id, { signal }).catch(() => undefined);
      return follow(stream, { terminal, logs: options.logs, lines: false });
    });
  },
});
