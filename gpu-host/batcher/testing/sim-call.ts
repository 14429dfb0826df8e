import { BatchCall, type CallKind, type KeyVisitor } from '../call.ts';
import type { BatchQueue } from '../queue.ts';

export interface SimShape {
  readonly kind: CallKind;
  readonly reads?: readonly number[];
  readonly writes?: readonly number[];
  /** Inputs of a forward, or steps of a run. */
  readonly tokens?: number;
  readonly chunkable?: boolean;
  readonly run?: boolean;
}

/** A call that computes nothing: what the batcher sees of one, told outright. */
export class SimCall extends BatchCall {
  readonly shape: SimShape;
  readonly name: string;
  left: number;

  constructor(queue: BatchQueue, shape: SimShape, name = '') {
    super(shape.kind, queue);
    this.shape = shape;
    this.name = name;
    this.left = shape.tokens ?? 1;
  }

  override get tokens(): number {
    return this.shape.run ? 1 : this.left;
  }

  override get continues(): boolean {
    return this.shape.run ?? false;
  }

  override chunkable(): boolean {
    return this.shape.chunkable ?? true;
  }

  override visitKeys(visit: KeyVisitor): void {
    for (const key of this.shape.reads ?? []) visit(key, false);
    for (const key of this.shape.writes ?? []) visit(key, true);
  }

  touches(key: number): boolean {
    return (this.shape.reads ?? []).includes(key) || (this.shape.writes ?? []).includes(key);
  }

  conflictsWith(other: SimCall): boolean {
    return (
      (this.shape.writes ?? []).some((key) => other.touches(key)) ||
      (other.shape.writes ?? []).some((key) => this.touches(key))
    );
  }
}
