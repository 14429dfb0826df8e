import type { GuestText } from './guest.ts';

/** Kinds of attack, as the threat model lists them. */
export const CLASSES = [
  'names',
  'realloc',
  'post-return',
  'results',
  'stack',
  'lists',
  'start',
  'tables',
  'control',
  'size',
  'bulk',
  'slow-calls',
  'memory',
  'handles',
  'floods',
] as const;
export type AttackClass = (typeof CLASSES)[number];

/** What an attack is made of: a guest of the contract, a core module, or a whole component; the latter two in text form or as bytes. */
export type Source =
  | { readonly guest: GuestText }
  | { readonly core: string | Uint8Array }
  | { readonly component: string | Uint8Array };

/** How the platform answered: the deploy was refused, or the invocation ended; with the code, `result` when it succeeded. */
export type End = `refused ${string}` | `ended ${string}`;

/** One component that tries to harm the platform, and the ends that its tenant may see. */
export interface Attack {
  /** Unique in the corpus; also the name of the function that is deployed. */
  readonly name: string;
  readonly kind: AttackClass;
  readonly source: () => Source;
  readonly ends: readonly End[];
  /** More of the manifest than the corpus' small limits. */
  readonly manifest?: Readonly<Record<string, unknown>>;
  readonly input?: unknown;
  /** How many invocations run at once; one by default. */
  readonly invocations?: number;
}

/** Ends as a deploy's refusal. */
export const refused = (...codes: readonly string[]): readonly End[] => codes.map((code) => `refused ${code}` as const);

/** Ends with the terminal event of the invocation: `result` or the code of an error. */
export const ended = (...codes: readonly string[]): readonly End[] => codes.map((code) => `ended ${code}` as const);

/** Ends as a deploy's refusal of a component that cannot be built, or takes too much to build. */
export const UNBUILT = refused('build-failed', 'unsupported-component', 'build-timeout');
