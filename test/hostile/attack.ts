import type { GuestText } from './guest.ts';

/** Kinds of attack; `docs/threat-model.md` describes their attackers and the defences. */
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

/**
 * Source of an attack's component. `guest`: fragments that `guest.ts` completes to a core module with the imports and exports of the contract.
 * `core`: a core module. `component`: a whole component. Both are WebAssembly text or bytes.
 */
export type Source =
  | { readonly guest: GuestText }
  | { readonly core: string | Uint8Array }
  | { readonly component: string | Uint8Array };

/** The platform's answer: a refused deploy with its error code, or an ended invocation with its error code, or with `result` for success. */
export type End = `refused ${string}` | `ended ${string}`;

/** One component that tries to harm the platform, and the ends that its tenant may see. */
export interface Attack {
  /** Unique in the corpus; also the name of the function that is deployed. */
  readonly name: string;
  readonly kind: AttackClass;
  readonly source: () => Source;
  readonly ends: readonly End[];
  /** Members of the manifest besides `name`. Each limit in `limits` replaces the small one of the same name in `arena.ts`. */
  readonly manifest?: Readonly<Record<string, unknown>> & { readonly limits?: Readonly<Record<string, number>> };
  readonly input?: unknown;
  /** Replaces the limit `wallMs` of the manifest. */
  readonly wallMs?: number;
  /** Number of concurrent invocations; one by default. */
  readonly invocations?: number;
}

/** The deploy is refused with one of these codes. */
export const refused = (...codes: readonly string[]): readonly End[] => codes.map((code) => `refused ${code}` as const);

/** The invocation ends with one of these: `result` or the code of an error. */
export const ended = (...codes: readonly string[]): readonly End[] => codes.map((code) => `ended ${code}` as const);

/** The invocation ends because it computes for too long. */
export const SPENT = ended('cpu-limit', 'deadline-exceeded');

/**
 * Ends of a flood. It may reach any limit first, lose its memory to other invocations (`terminated`), fail with the error of a refused call
 * (`inferlet-error`, `unavailable`), or finish its work (`result`).
 */
export const FLOODED = ended(
  'cpu-limit',
  'deadline-exceeded',
  'output-limit',
  'trap',
  'result',
  'terminated',
  'memory-limit',
  'inferlet-error',
  'unavailable',
);

/** The deploy is refused because the build fails or exceeds its limits. */
export const UNBUILT = refused('build-failed', 'unsupported-component', 'build-timeout');
