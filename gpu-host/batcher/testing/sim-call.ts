import type { PagesAhead } from '../call.ts';
import { type Access, BatchCall, type BatchQueue, type CallKind, type KeyVisitor } from '../call.ts';

export interface SimShape {
  readonly kind: CallKind;
  readonly reads?: readonly number[];
  readonly writes?: readonly number[];
  readonly fills?: readonly number[];
  /** Inputs of a forward, or steps of a run. */
  readonly tokens?: number;
  /** Tokens that a projection scores. */
  readonly scores?: number;
  readonly chunkable?: boolean;
  /** Maximum inputs of one step. */
  readonly stepTokens?: number;
  readonly besideTokens?: number;
  readonly run?: boolean;
  /** True when the call arrives without something that it needs. */
  readonly late?: boolean;
  readonly variant?: string | undefined;
}

/** Conflict of two calls of one address space: `none` allows any order; `soft` keeps their order, possibly in one batch; `hard` separates them. */
export type Conflict = 'none' | 'soft' | 'hard';

/** A call that computes nothing: `shape` states what the batcher sees of it. */
export class SimCall extends BatchCall {
  readonly shape: SimShape;
  readonly name: string;
  /** Inputs still to compute, or steps of a run. */
  left: number;
  /** True while something that the call needs is still to come. */
  late: boolean;
  /** True from when the call got what it needs until it was parked. */
  acquired = false;
  /** Set by tests of calls that share pages. */
  pagesToCome: PagesAhead | undefined;

  constructor(queue: BatchQueue, shape: SimShape, name = '') {
    super(shape.kind, queue);
    this.shape = shape;
    this.name = name;
    this.left = shape.tokens ?? 1;
    this.late = shape.late ?? false;
  }

  override get tokens(): number {
    return this.shape.run ? 1 : this.left;
  }

  override get stepTokens(): number {
    return this.shape.stepTokens ?? super.stepTokens;
  }

  override get besideTokens(): number {
    return this.shape.besideTokens ?? super.besideTokens;
  }

  override get scores(): number {
    return this.shape.scores ?? 0;
  }

  override get pagesAhead(): PagesAhead | undefined {
    return this.pagesToCome;
  }

  override acquire(): boolean {
    this.acquired = !this.late;
    return this.acquired;
  }

  override parked(): void {
    this.acquired = false;
  }

  override get continues(): boolean {
    return this.shape.run ?? false;
  }

  override get variant(): string | undefined {
    return this.shape.variant;
  }

  override chunkable(): boolean {
    return this.shape.chunkable ?? true;
  }

  override visitKeys(visit: KeyVisitor): void {
    for (const [key, access] of this.accesses()) visit(key, access);
  }

  *accesses(): Generator<[number, Access]> {
    for (const key of this.shape.reads ?? []) yield [key, 'read'];
    for (const key of this.shape.fills ?? []) yield [key, 'fill'];
    for (const key of this.shape.writes ?? []) yield [key, 'write'];
  }

  /** Applies the conflict rule of `Scoreboard` directly, to each pair of accesses. */
  conflict(other: SimCall): Conflict {
    if (this.queue.scoreboard !== other.queue.scoreboard) return 'none';
    const forwards = this.kind === 'forward' && other.kind === 'forward' && !this.continues && !other.continues;
    let found: Conflict = 'none';
    for (const [key, access] of this.accesses()) {
      for (const [otherKey, otherAccess] of other.accesses()) {
        if (key !== otherKey || (access === 'read' && otherAccess === 'read')) continue;
        if (!forwards || access === 'write' || otherAccess === 'write') return 'hard';
        found = 'soft';
      }
    }
    return found;
  }

  /** True when this call reads or fills a page that `earlier` fills. */
  needs(earlier: SimCall): boolean {
    for (const [key] of this.accesses()) if (earlier.shape.fills?.includes(key)) return true;
    return false;
  }
}
