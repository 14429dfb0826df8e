import type { Mode } from './synthesis.ts';

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
