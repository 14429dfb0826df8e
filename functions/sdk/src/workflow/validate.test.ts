import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Builder, prompt } from './builder.ts';
import type { Graph, Node, Ref } from './graph.ts';
import { validate } from './validate.ts';

function chain(): Graph {
  const g = new Builder('chain');
  const first = g.component('first', () => g.generate('Once', { maxTokens: 2 }));
  const second = g.component('second', () => g.generate(prompt`${first}`, { maxTokens: 2 }));
  return g.graph({ second: { from: second } });
}

/** The graph with another node in place of the one with the id. */
const withNode = (graph: Graph, id: string, change: Partial<Node>): Graph => ({
  ...graph,
  nodes: graph.nodes.map((node) => (node.id === id ? { ...node, ...change } : node)),
});

describe('validate', () => {
  it('accepts what the builder makes', () => validate(chain()));

  it('reports the fault of a node', () => {
    const partsFrom = (node: string, port: string, type: Ref['type']) => ({
      parts: { list: [{ from: { node, port, type } }] },
    });
    const cases: readonly [Partial<Node>, RegExp][] = [
      [{ inputs: partsFrom('nowhere', 'text', 'text') }, /reads "nowhere.text", but there is no node "nowhere"/],
      [
        { inputs: partsFrom('second/decoding', 'words', 'text') },
        /but the outputs of "second\/decoding" are: text, context/,
      ],
      [{ inputs: partsFrom('second/decoding', 'context', 'text') }, /as text, but it is context/],
      [
        { inputs: partsFrom('second/decoding', 'text', 'text') },
        /Nodes wait for each other: first\/prefilling → second\/decoding → second\/prefilling/,
      ],
      [{ after: ['second'] }, /Nodes wait for each other/],
      [{ id: 'first/decoding' }, /Two nodes have the id "first\/decoding"/],
      [{ retries: -1 }, /cannot be retried -1 times/],
      [{ each: { port: 'parts', batch: 0 } }, /has batches of 0 elements: give 1 or more/],
      [{ each: { port: 'words', batch: 2 } }, /has no input "words"/],
    ];
    for (const [change, expected] of cases) {
      assert.throws(() => validate(withNode(chain(), 'first/prefilling', change)), expected);
    }
  });

  it('refuses two outputs with the same key', () => {
    const g = new Builder('names');
    const text = g.call('loop.a', {}, 'text', () => 'one');
    const looped = g.loop({ 'a.value': text }, 1, (inner, state) => ({
      ...state,
      done: inner.call('done', {}, 'flag', () => true),
    }));
    const graph = g.graph({ text: { from: text }, looped: { from: looped['a.value'] } });
    assert.throws(() => validate(graph), /Two outputs are "names\/loop\.a\.value"/);
  });

  it('refuses a result that reads a value of a branch from outside', () => {
    const g = new Builder('branch');
    const test = g.call('test', {}, 'flag', () => true);
    let inside: Ref<'text'> | undefined;
    const branch = () => {
      inside = g.generate('Once');
      return inside;
    };
    const result = g.condition(test, branch, branch);
    validate(g.graph({ result: { from: result } }));
    const outside = /"the result" reads "branch\/decoding-2", which runs only if "branch\/test.value" is false/;
    assert.throws(() => validate(g.graph({ inside: { from: inside! } })), outside);
  });

  it('refuses a condition that reads a value from a branch of another condition', () => {
    /** Checks a graph whose `inside` runs only if `one` is true. */
    const check = (
      make: (
        g: Builder,
        of: Record<'one' | 'two', Ref<'flag'>> & Record<'inside' | 'outside', () => Ref<'text'>>,
      ) => Ref,
    ) => {
      const g = new Builder('joined');
      const [one, two] = [g.call('one', {}, 'flag', () => true), g.call('two', {}, 'flag', () => true)];
      const outside = () => g.call('outside', {}, 'text', () => 'outside');
      let inside: Ref<'text'> | undefined;
      g.condition(one, () => (inside = g.call('inside', {}, 'text', () => 'inside')), outside);
      validate(g.graph({ result: { from: make(g, { one, two, inside: () => inside!, outside }) } }));
    };
    check((g, { one, inside, outside }) => g.condition(one, inside, outside));
    check((g, { one, two, inside, outside }) => g.condition(one, () => g.condition(two, inside, outside), outside));
    check((g, { one, two, inside, outside }) => g.condition(two, () => g.condition(one, inside, outside), outside));
    const refused = /"joined\/condition-\d" reads "joined\/inside", which runs only if "joined\/one.value" is true/;
    assert.throws(() => check((g, { two, inside, outside }) => g.condition(two, inside, outside)), refused);
    assert.throws(() => check((g, { one, inside, outside }) => g.condition(one, outside, inside)), refused);
  });

  it('refuses two components of the same name, and a component within another', () => {
    const g = new Builder('components');
    g.component('one', () => g.prefill('x'));
    assert.throws(() => g.component('one', () => g.prefill('x')), /The component "one" already exists/);
    assert.throws(() => g.component('two', () => g.component('three', () => 0)), /begins inside of "two"/);
  });
});
