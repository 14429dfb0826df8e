import { Context, defineInferlet, send } from '@pie/inferlet';

/** The input that the schema in pie.json accepts. */
interface Input {
  readonly prompt: string;
  readonly turns?: number;
  readonly openings: readonly string[];
  readonly events: readonly string[];
  readonly maxTokens?: number;
  readonly model?: string;
}

/** The program of `pie demo`: in each turn the model writes a sentence, a tool adds an event, and the longest of several forks goes on. */
export const run = defineInferlet(async ({ prompt, turns = 4, openings, events, maxTokens = 32, model }: Input) => {
  using contexts = new DisposableStack();
  let story = contexts.use(new Context({ model }));
  story.fill(prompt);
  const promptTokens = story.length;
  let text = prompt;
  let tokens = 0;
  await send(prompt);
  for (let turn = 0; turn < turns; turn++) {
    const sentence = await story.generate({ maxTokens, stop: '.' }).pipe();
    tokens += sentence.tokens.length;
    text += `${sentence.text}.`;
    const eventText = event(events, text);
    text += eventText;
    story.fill(`.${eventText}`);
    await send(`.${eventText}`);

    const forks = await Promise.all(
      openings.map(async (opening) => {
        const fork = contexts.use(await story.fork());
        fork.fill(opening);
        const draft = await fork.generate({ maxTokens, stop: '.' }).collect();
        return { fork, tokens: draft.tokens.length, text: `${opening}${draft.text}.` };
      }),
    );
    tokens += forks.reduce((sum, fork) => sum + fork.tokens, 0);
    const best = forks.reduce((longest, fork) => (fork.text.length > longest.text.length ? fork : longest));
    story = best.fork;
    story.fill('.');
    text += best.text;
    await send(best.text);
  }
  return { text, tokens, promptTokens };
});

/** The agent's tool: decides by the text what happens next. */
const event = (events: readonly string[], text: string): string => events[text.length % events.length] ?? '';
