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

/** Source of an attack: a guest of the contract, or a core module or a whole component as text or bytes. */
export type Source =
  | { readonly guest: GuestText }
  | { readonly core: string | Uint8Array }
  | { readonly component: string | Uint8Array };

/** The platform's answer: a refused deploy or an ended invocation, with the code; `result` is success. */
export type End = `refused ${string}` | `ended ${string}`;

/** One component that tries to harm the platform, and the ends that its tenant may see. */
export interface Attack {
  /** Unique in the corpus; also the name of the function that is deployed. */
  readonly name: string;
  readonly kind: AttackClass;
  readonly source: () => Source;
  readonly ends: readonly End[];
  /** Manifest members besides the corpus's small limits. */
  readonly manifest?: Readonly<Record<string, unknown>> & { readonly limits?: Readonly<Record<string, number>> };
  readonly input?: unknown;
  /** Replaces the deadline of the manifest. */
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

/** Ends of a flood, which may reach any limit first. */
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
