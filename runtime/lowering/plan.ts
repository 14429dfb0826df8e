/**
 * How the core modules of a component are instantiated and linked, as data. jco's glue holds the same knowledge as 20,000 lines of
 * JavaScript that build 0.5 MB of closures for every instance; a plan is recorded from one run of that glue (`record.ts`) and replayed
 * (`link.ts`) without it.
 */

/** Where an import comes from. */
export type Source =
  /** An export of an earlier instance of the plan. */
  | { readonly kind: 'export'; readonly instance: number; readonly name: string }
  /** A function of ours, found by the import's own module and name. */
  | { readonly kind: 'host' }
  /** A global of the component's own, made anew for each instance; equal ids are one global. */
  | {
      readonly kind: 'global';
      readonly id: number;
      readonly type: 'i32' | 'i64';
      readonly mutable: boolean;
      readonly value: number;
    }
  /** A function that an inferlet has no business calling. */
  | { readonly kind: 'trap' };

export interface PlannedImport {
  readonly module: string;
  readonly name: string;
  readonly source: Source;
}

export interface PlannedInstance {
  /** File name of the core module. */
  readonly module: string;
  readonly imports: readonly PlannedImport[];
}

/** Where something that the host needs is exported. */
export interface Location {
  readonly instance: number;
  readonly name: string;
}

export interface Plan {
  readonly format: typeof PLAN_FORMAT;
  readonly instances: readonly PlannedInstance[];
  readonly entry: {
    readonly form: 'callback' | 'stackful' | 'sync';
    readonly run: Location;
    readonly callback: Location | null;
    readonly memory: Location;
    readonly realloc: Location | null;
  };
}

/** Version of this format; a plan of another version is recorded again. */
export const PLAN_FORMAT = 1;

/** Checks a plan read from disk; null when it is of another version or damaged. */
export function asPlan(value: unknown): Plan | null {
  if (typeof value !== 'object' || value === null) return null;
  const plan = value as Partial<Plan>;
  return plan.format === PLAN_FORMAT && Array.isArray(plan.instances) && typeof plan.entry === 'object'
    ? (plan as Plan)
    : null;
}
