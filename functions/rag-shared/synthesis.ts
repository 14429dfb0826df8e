import { InferletError } from '@pie/inferlet';
import { type Builder, prompt, type Ref } from '@pie/inferlet/workflow';

/**
 * `tree`: an answer from each passage, in parallel, and one answer from these. `refine`: an answer that each passage improves in turn. `compact`:
 * an answer from all passages in one prompt.
 */
export type Mode = 'tree' | 'refine' | 'compact';

export interface SynthesisOptions {
  readonly mode: Mode;
  readonly maxTokens: number;
  readonly model?: string | undefined;
}

const INSTRUCTION =
  'Answer the question in one short sentence, from the passage and from nothing else. Do not guess.\n';
const ALL = 'Answer the question in one short sentence, from the passages and from nothing else. Do not guess.\n';
const COMBINE = 'These answers to one question come from several passages. Write one answer from them.\n';
const REFINE = 'Improve the answer to the question by what the passage adds. Keep the answer when it adds nothing.\n';

/** The answer to a question from passages, as LlamaIndex makes it. The part of a prompt that exists last comes last: the rest is computed before. */
export function synthesize(
  g: Builder,
  question: string,
  passages: readonly Ref<'text'>[],
  { mode, maxTokens, model }: SynthesisOptions,
): Ref<'text'> {
  const options = { maxTokens, model, stop: '\n' };
  const alone = (passage: Ref<'text'>) =>
    g.generate(prompt`${INSTRUCTION}Question: ${question}\nPassage: ${passage}\nAnswer:`, options);
  const [first, ...others] = passages;
  if (first === undefined) throw new InferletError('invalid-argument', 'The document has no text.');
  if (mode === 'compact') {
    const all = passages.reduce((text, passage) => prompt`${text}Passage: ${passage}\n`, prompt``);
    return g.generate(prompt`${ALL}Question: ${question}\n${all}Answer:`, options);
  }
  if (mode === 'refine') {
    return others.reduce(
      (answer, passage) =>
        g.generate(
          prompt`${REFINE}Question: ${question}\nPassage: ${passage}\nAnswer:${answer}\nBetter answer:`,
          options,
        ),
      alone(first),
    );
  }
  if (others.length === 0) return alone(first);
  const listed = passages.map(alone).reduce((text, answer) => prompt`${text}-${answer}\n`, prompt``);
  return g.generate(prompt`${COMBINE}Question: ${question}\n${listed}Answer:`, options);
}

/** The input of a function that answers from a document. */
export interface DocumentInput {
  readonly document: string;
  readonly question: string;
  readonly mode?: Mode;
  readonly passageCharacters?: number;
  readonly topK?: number;
  readonly maxTokens?: number;
  readonly model?: string;
  readonly encoder?: string;
  /** Names of the passes that optimize the workflow, see `passesNamed`; all by default. */
  readonly passes?: readonly string[];
}
