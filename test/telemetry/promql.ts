import assert from 'node:assert/strict';
import type { SyntaxNode } from '@lezer/common';
import { parser } from '@prometheus-io/lezer-promql';

/** A selector: what it selects of which metric. */
export interface Selector {
  readonly metric: string;
  /** By the label's name; `values` are those that it names, one by one, where it names any. */
  readonly matchers: readonly { readonly label: string; readonly values: readonly string[] }[];
}

export interface Expression {
  readonly selectors: readonly Selector[];
  /** Labels that something is grouped by. */
  readonly groups: readonly string[];
}

/** Words with nothing of a regular expression in them but alternatives. */
const PLAIN = /^[\w-]+(\|[\w-]+)*$/;

/** Reads an expression with Prometheus' own grammar. Throws when it is none. */
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
