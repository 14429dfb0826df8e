import type { WitFunction } from './model.ts';

/** Syntax tree of WIT text, before names are resolved. */

export type TypeExpression =
  | { readonly kind: 'name'; readonly name: string; readonly at: Place }
  | {
      readonly kind: 'apply';
      readonly name: string;
      readonly arguments: readonly (TypeExpression | null)[];
      readonly at: Place;
    };

export interface Place {
  readonly file: string;
  readonly line: number;
  readonly column: number;
}

export interface ParsedField {
  readonly name: string;
  readonly type: TypeExpression;
  readonly docs: string;
}

export interface ParsedFunction {
  readonly name: string;
  readonly kind: WitFunction['kind'];
  readonly params: readonly ParsedField[];
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
  readonly package: { readonly name: string; readonly version: string } | null;
  readonly interfaces: readonly ParsedInterface[];
  readonly worlds: readonly ParsedWorld[];
}
