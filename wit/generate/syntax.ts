/** The syntax tree of WIT text, as `parse.ts` makes it. Types and interfaces are still names; `resolve.ts` looks them up. */

import type { WitFunction } from './model.ts';

/**
 * A type as it is written: a name (`u32`, `pair`), or a name with arguments in angle brackets (`list<u8>`). An argument is null for the sign
 * `_`, as in `result<_, string>`.
 */
export type TypeExpression =
  | { readonly kind: 'name'; readonly name: string; readonly at: Place }
  | {
      readonly kind: 'apply';
      readonly name: string;
      readonly arguments: readonly (TypeExpression | null)[];
      readonly at: Place;
    };

/** A place in a WIT file; line and column count from 1. */
export interface Place {
  readonly file: string;
  readonly line: number;
  readonly column: number;
}

/** A field of a record, or a parameter of a function. `docs` is the empty text for an item without documentation. */
export interface ParsedField {
  readonly name: string;
  readonly type: TypeExpression;
  readonly docs: string;
}

export interface ParsedFunction {
  readonly name: string;
  readonly kind: WitFunction['kind'];
  readonly params: readonly ParsedField[];
  /** Null when no result is written. A constructor's result is never written. */
  readonly result: TypeExpression | null;
  readonly async: boolean;
  readonly docs: string;
}

export type Declaration =
  | { readonly kind: 'record'; readonly name: string; readonly docs: string; readonly fields: readonly ParsedField[] }
  | {
      readonly kind: 'variant';
      readonly name: string;
      readonly docs: string;
      /** `type` is the type of the case's value; null for a case without a value. */
      readonly cases: readonly { readonly name: string; readonly type: TypeExpression | null; readonly docs: string }[];
    }
  | {
      readonly kind: 'enum';
      readonly name: string;
      readonly docs: string;
      readonly cases: readonly { readonly name: string; readonly docs: string }[];
    }
  | { readonly kind: 'alias'; readonly name: string; readonly docs: string; readonly type: TypeExpression }
  | {
      readonly kind: 'resource';
      readonly name: string;
      readonly docs: string;
      readonly functions: readonly ParsedFunction[];
    };

export interface ParsedInterface {
  readonly name: string;
  readonly docs: string;
  readonly at: Place;
  /** For each `use`: the type `name` of the interface `from`, under the name `as`. */
  readonly uses: readonly { readonly from: string; readonly name: string; readonly as: string; readonly at: Place }[];
  readonly declarations: readonly Declaration[];
  readonly functions: readonly ParsedFunction[];
}

export interface ParsedWorld {
  readonly name: string;
  readonly docs: string;
  readonly imports: readonly { readonly name: string; readonly at: Place }[];
  readonly exports: readonly ParsedFunction[];
}

export interface ParsedFile {
  /** Null when this file has no `package` line. */
  readonly package: { readonly name: string; readonly version: string } | null;
  readonly interfaces: readonly ParsedInterface[];
  readonly worlds: readonly ParsedWorld[];
}
