import { errorFromEvent } from '../../client/errors.ts';
import type { PieEvent } from '../../client/events.ts';
import type { InvocationStream } from '../../client/invocation-stream.ts';
import { EXIT, Failure } from '../failure.ts';
import { counted, duration } from '../format.ts';
import type { Terminal } from '../terminal.ts';

export interface FollowOptions {
  readonly terminal: Terminal;
  /** True to show the function's log lines, too. */
  readonly logs: boolean;
  /** True to put each message on a line of its own. */
  readonly lines: boolean;
  /** True when the caller shows log lines elsewhere. */
  readonly logsElsewhere?: boolean;
  /** Called with every event before it is shown. */
  readonly onEvent?: (event: PieEvent) => void;
}

const LINE_FEED = 10;

/** Shows an invocation's events until it ends. Returns the exit code of a success; throws {@link Failure} for a failed invocation. */
export async function follow(stream: InvocationStream, options: FollowOptions): Promise<number> {
  const { terminal } = options;
  /** Length of the messages that still count: characters of texts, bytes of other content. */
  let shownLength = 0;
  /** `shownLength` at the last question. A new attempt voids only the messages after that question. */
  let keptLength = 0;
  let isWaiting = false;
  let atLineStart = true;
  const startedAt = performance.now();
  /** Text of the last warning. When a further attempt starts, this is the platform's warning that tells the reason. */
  let lastWarning = '';
  const endLine = async () => {
    if (!atLineStart) await terminal.write('\n');
    atLineStart = true;
  };
  for await (const event of stream) {
    options.onEvent?.(event);
    if (event.event !== 'log' || options.logsElsewhere !== true) terminal.value(event);
    switch (event.event) {
      case 'start': {
        const { attempt = 1 } = event.data;
        if (attempt === 1) break;
        // Output of earlier attempts stays visible. The remark tells the reader that it no longer counts, unless it came before a question.
        await endLine();
        shownLength = keptLength;
        const reason = lastWarning === '' ? '' : `: ${lastWarning}`;
        terminal.remark(
          isWaiting ? `— goes on (attempt ${attempt}) —` : `— starts again (attempt ${attempt})${reason} —`,
        );
        isWaiting = false;
        break;
      }
      case 'message': {
        if ('file' in event.data) {
          const { name, bytes } = event.data.file;
          await endLine();
          await terminal.text(`file ${name} (${counted(bytes, 'byte')})\n`);
          break;
        }
        const content = 'text' in event.data ? event.data.text : Buffer.from(event.data.base64, 'base64');
        const hasOwnLine = typeof content === 'string' && isJsonValue(content);
        if (hasOwnLine) await endLine();
        shownLength += content.length;
        if (typeof content === 'string') await terminal.text(content);
        else await terminal.write(content);
        if (content.length > 0)
          atLineStart = typeof content === 'string' ? content.endsWith('\n') : content.at(-1) === LINE_FEED;
        if (options.lines || hasOwnLine) await endLine();
        break;
      }
      case 'log':
        if (event.data.level === 'warn') lastWarning = event.data.message;
        if (options.logs) terminal.note(`[${event.data.level}] ${event.data.message}`);
        break;
      case 'question':
        keptLength = shownLength;
        isWaiting = true;
        await endLine();
        terminal.remark(`— ${event.data.text}`);
        terminal.remark(`— the invocation waits until ${event.data.until}: pie answer ${stream.id} '…' —`);
        break;
      case 'gap':
        await endLine();
        terminal.remark(`— a part of the output was lost: ignore the output after event ${event.data.after} —`);
        break;
      case 'result': {
        await endLine();
        const { output, usage } = event.data;
        // Messages other than files are the answer; without such messages, the result is the answer.
        if (shownLength === 0) terminal.print(JSON.stringify(output, null, 2));
        if (terminal.interactive) terminal.note(summary(output, usage, performance.now() - startedAt));
        return EXIT.ok;
      }
      case 'error': {
        await endLine();
        const error = errorFromEvent(event.data, stream.id);
        throw new Failure(error.message, {
          exitCode: error.code === 'cancelled' ? EXIT.interrupted : EXIT.failed,
          code: error.code,
          why: error.code === 'inferlet-error' ? 'The function itself ended with this error.' : undefined,
          advice: error.hint,
          invocation: stream.id,
        });
      }
    }
  }
  throw new Failure('The stream ended without a result.', {
    exitCode: EXIT.unreachable,
    code: 'bad-response',
    advice: `See how it ended: \`pie status ${stream.id}\`.`,
    invocation: stream.id,
  });
}

/** True for a message that is a JSON object or list. It gets its own line; pieces of text do not. */
function isJsonValue(text: string): boolean {
  if (!/^\s*[[{]/.test(text)) return false;
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

function summary(output: unknown, usage: Readonly<Record<string, unknown>> | undefined, ms: number): string {
  const parts = [duration(ms)];
  const tokens = typeof output === 'object' && output !== null && 'tokens' in output ? output.tokens : undefined;
  if (Array.isArray(tokens)) parts.push(counted(tokens.length, 'token'));
  else if (typeof usage?.tokens === 'number') parts.push(counted(usage.tokens, 'token'));
  if (typeof output === 'object' && output !== null && 'finishReason' in output)
    parts.push(`ended by ${output.finishReason}`);
  return `(${parts.join(', ')})`;
}
