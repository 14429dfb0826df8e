import assert from 'node:assert/strict';
import type { SyntaxNode } from '@lezer/common';
import { parser } from '@prometheus-io/lezer-promql';

/** A vector selector: a metric and its label matchers. */
export interface Selector {
  readonly metric: string;
  /** `values` are the words that the matcher lists for its label; empty if it has other regular-expression syntax. */
  readonly matchers: readonly { readonly label: string; readonly values: readonly string[] }[];
}

export interface Expression {
  readonly selectors: readonly Selector[];
  /** Labels in `by` clauses and similar groupings. */
  readonly groups: readonly string[];
}

/** Matches words separated by `|`, without other regular-expression syntax. */
const PLAIN = /^[\w-]+(\|[\w-]+)*$/;

/** Parses an expression with Prometheus's own grammar. @throws Error for an invalid expression */
export function readExpression(text: string): Expression {
  const tree = parser.parse(text);
  const selectors: { metric: string; matchers: { label: string; values: readonly string[] }[] }[] = [];
  const groups: string[] = [];
  const textOf = ({ from, to }: Pick<SyntaxNode, 'from' | 'to'>) => text.slice(from, to);
  tree.iterate({
    enter: ({ type, node }) => {
      assert.ok(!type.isError, `no expression at ${node.from}: ${text}`);
      if (type.name === 'VectorSelector')
        selectors.push({ metric: textOf(node.getChild('Identifier')!), matchers: [] });
      if (type.name === 'UnquotedLabelMatcher') {
        const value = textOf(node.getChild('StringLiteral')!).slice(1, -1);
        const label = textOf(node.getChild('LabelName')!);
        selectors.at(-1)!.matchers.push({ label, values: PLAIN.test(value) ? value.split('|') : [] });
      }
      if (type.name === 'GroupingLabels') groups.push(...node.getChildren('LabelName').map(textOf));
    },
  });
  return { selectors, groups };
}
