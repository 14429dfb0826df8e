import { askPerson, Context, defineInferlet, resumed, sampler, type Waiting } from '@pie/inferlet';

/** The input that the schema in pie.json accepts. */
interface Input {
  readonly prompt: string;
  readonly maxTokens?: number;
  readonly drafts?: number;
  readonly waitSeconds?: number;
  readonly model?: string;
}

interface State {
  readonly draft: string;
  /** Number of drafts so far. */
  readonly drafts: number;
}

interface Verdict {
  readonly decision: 'approve' | 'again' | 'reject';
  /** Replaces the draft. */
  readonly text?: string;
}

interface Outcome {
  readonly text: string | null;
  readonly decision: 'approved' | 'rejected' | 'expired';
  readonly drafts: number;
}

const VERDICT = {
  type: 'object',
  properties: {
    decision: { enum: ['approve', 'again', 'reject'] },
    text: { type: 'string', maxLength: 4096 },
  },
  required: ['decision'],
  additionalProperties: false,
};
/** Most characters of a draft in the question; a question has at most 4,096. */
const MAX_QUOTED = 3000;

/** Asks a person about each draft. Between attempts, the platform keeps only the state. */
export const run = defineInferlet(async (input: Input): Promise<Outcome | Waiting> => {
  const resumption = resumed<State, Verdict>();
  if (resumption === null) return ask(input, 1);
  const { draft, drafts } = resumption.state;
  if (resumption.answer.status === 'expired') return { text: null, decision: 'expired', drafts };
  const { decision, text = draft } = resumption.answer.value;
  if (decision === 'approve') return { text, decision: 'approved', drafts };
  if (decision === 'reject' || drafts >= mostDrafts(input)) return { text: null, decision: 'rejected', drafts };
  return ask(input, drafts + 1);
});

const mostDrafts = (input: Input): number => input.drafts ?? 3;

async function ask(input: Input, drafts: number): Promise<Waiting> {
  const { prompt, maxTokens = 64, waitSeconds = 86_400, model } = input;
  using ctx = new Context({ model });
  // Each draft has its own seed, so that another attempt writes another text.
  const { text } = await ctx
    .fill(prompt)
    .generate({ maxTokens, sampler: sampler({ temperature: 0.8, seed: drafts }) })
    .collect();
  const another = drafts < mostDrafts(input) ? ', ask for another one,' : '';
  return askPerson({
    text: `Draft ${drafts}: approve it${another} or reject it.\n\n${text.slice(0, MAX_QUOTED)}`,
    schema: VERDICT,
    timeoutMs: 1000 * waitSeconds,
    state: { draft: text, drafts } satisfies State,
  });
}
