import type { PieClient } from '../../client/client.ts';
import { errorFromEvent, PieError } from '../../client/errors.ts';
import { readFrames } from '../../client/event-source.ts';
import { type Http, pause } from '../../client/http.ts';

type Completion = Pick<Run, 'text' | 'tokens' | 'promptTokens'>;

/** The stop text of every completion. */
const STOP = '.';

/** A part of a streamed completion, or a whole one that was not streamed. */
interface Chunk {
  readonly choices: readonly { readonly text: string }[];
  readonly usage?: { readonly prompt_tokens: number; readonly completion_tokens: number } | null;
}

/**
 * Runs the task in the client, as with a server that runs no programs: a loop over `/v1/completions` in which every request contains the whole
 * text so far. The drafts of a turn are requested in parallel. The platform's prefix cache reuses what earlier requests computed.
 */
export async function runLoop(http: Http, side: Side): Promise<Run> {
  const { task, show, signal } = side;
  const startedAt = performance.now();
  const total = { requests: 0, tokens: 0, promptTokens: 0 };
  /** Completes a sentence and adds the full stop, which the answer lacks: it ends before the stop text, or was cut at `maxTokens`. */
  const completeSentence = async (prompt: string, onText?: (text: string) => void): Promise<string> => {
    await pause(side.roundTripMs, signal);
    const { text, tokens, promptTokens } = await completion(http, side, prompt, onText);
    total.requests++;
    total.tokens += tokens;
    total.promptTokens += promptTokens;
    return text + STOP;
  };
  let text = task.prompt;
  show(text);
  for (let turn = 0; turn < task.turns; turn++) {
    text += await completeSentence(text, show);
    // Pick the event by the length of the text, as the tool of `story-agent` does: equal texts then get equal events.
    const event = task.events[text.length % task.events.length] ?? '';
    text += event;
    // The stream has shown the sentence without its full stop.
    show(STOP + event);
    const textBefore = text;
    const drafts = await Promise.all(
      task.openings.map(async (opening) => opening + (await completeSentence(textBefore + opening))),
    );
    const longest = drafts.reduce((best, draft) => (draft.length > best.length ? draft : best));
    text += longest;
    show(longest);
  }
  return { text, ms: performance.now() - startedAt, ...total };
}

/** Requests one completion, up to `STOP` or `maxTokens` tokens. With `onText`, streams the completion and passes each piece to `onText`. */
async function completion(
  http: Http,
  { task: { model, maxTokens }, signal }: Side,
  prompt: string,
  onText?: (text: string) => void,
): Promise<Completion> {
  const stream = onText !== undefined;
  const response = await http.request('/v1/completions', {
    method: 'POST',
    signal,
    patient: true,
    headers: { 'content-type': 'application/json', ...(stream && { accept: 'text/event-stream' }) },
    body: JSON.stringify({
      model,
      prompt,
      max_tokens: maxTokens,
      temperature: 0,
      stop: STOP,
      ...(stream && { stream, stream_options: { include_usage: true } }),
    }),
  });
  let text = '';
  const completionOf = ({ usage }: Chunk): Completion => ({
    text,
    tokens: usage?.completion_tokens ?? 0,
    promptTokens: usage?.prompt_tokens ?? 0,
  });
  if (!stream) {
    const answer = await http.parsed<Chunk>(response, signal);
    text = answer.choices[0]?.text ?? '';
    return completionOf(answer);
  }
  let finalCompletion: Completion | null = null;
  if (response.body === null) throw new PieError('bad-response', 'The stream has no body.');
  for await (const { data } of readFrames(response.body, { idleTimeoutMs: http.idleTimeoutMs, signal })) {
    if (data === '[DONE]') break;
    const chunk = JSON.parse(data) as Chunk & { error?: { message: string } };
    if (chunk.error !== undefined) throw new PieError('bad-response', chunk.error.message);
    const piece = chunk.choices[0]?.text ?? '';
    text += piece;
    if (piece !== '') onText(piece);
    if (chunk.usage != null) finalCompletion = completionOf(chunk);
  }
  if (finalCompletion === null) throw new PieError('bad-response', 'The stream ended without its usage.');
  return { ...finalCompletion, text };
}

/** The function that carries out the task on the platform. */
export const PROGRAM = 'story-agent';

/** Runs the task as one invocation. */
export async function runProgram(client: PieClient, { task, roundTripMs, show, signal }: Side): Promise<Run> {
  const startedAt = performance.now();
  await pause(roundTripMs, signal);
  const stream = await client.invoke(PROGRAM, task, { signal, cancelOnDisconnect: true });
  for await (const event of stream) {
    if (event.event === 'message' && 'text' in event.data) show(event.data.text);
    if (event.event === 'error') throw errorFromEvent(event.data, stream.id);
    if (event.event === 'result') {
      const { text, tokens, promptTokens } = event.data.output as Pick<Run, 'text' | 'tokens' | 'promptTokens'>;
      return { text, tokens, promptTokens, ms: performance.now() - startedAt, requests: 1 };
    }
  }
  throw new PieError('bad-response', 'The stream ended without an outcome.', { invocation: stream.id });
}

/** The task of the demo, which the program `story-agent` and the client loop both carry out. */
interface Task {
  readonly prompt: string;
  readonly turns: number;
  /** Each draft of a turn begins with one of these; the story goes on with the longest draft. */
  readonly openings: readonly string[];
  /** Sentences, one of which the tool adds in each turn. */
  readonly events: readonly string[];
  readonly maxTokens: number;
  readonly model: string;
}

export const TASK: Omit<Task, 'model'> = {
  prompt: 'Once upon a time, there was a little dog named Max.',
  turns: 5,
  openings: [' He', ' Then', ' But'],
  events: [
    ' Suddenly, it began to rain.',
    ' A big bird came to the tree.',
    ' His friend Lily called him.',
    ' There was a red ball on the grass.',
    ' The sun was very hot.',
  ],
  maxTokens: 24,
};

/** One run of the task, as its client saw it. */
export interface Run {
  readonly text: string;
  readonly ms: number;
  /** HTTP requests. */
  readonly requests: number;
  /** Tokens that the model wrote, drafts included. */
  readonly tokens: number;
  /** Tokens of all prompts that the client sent. */
  readonly promptTokens: number;
}

/** The task and the options for one side of the demo: the program or the client loop. */
export interface Side {
  readonly task: Task;
  /** Time added to each request, as a network between client and platform would add it. */
  readonly roundTripMs: number;
  /** Called with each piece of the story. */
  readonly show: (text: string) => void;
  readonly signal: AbortSignal;
}
