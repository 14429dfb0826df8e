import type { ModelConfig } from '#gpu-host/models/config.ts';
import type { GraphBuilder } from './graph-builder.ts';
import { headLinear, type WeightBits, type WeightNodes } from './weights.ts';

/** Logits of states. */
export function addLogits(
  graph: GraphBuilder,
  weights: WeightNodes,
  config: ModelConfig,
  states: string,
  bits: WeightBits,
): string {
  const { logitScale, logitSoftcap } = config;
  const products = weights.multiply(states, headLinear(config, bits));
  if (logitSoftcap === null) return scaled(graph, products, logitScale, 'logits-scaled');
  const inner = scaled(graph, products, logitScale / logitSoftcap, 'logits-in-caps');
  return scaled(graph, graph.node('Tanh', [inner], 'logits-tanh'), logitSoftcap, 'logits-capped');
}

/** A value times a number. */
export function scaled(graph: GraphBuilder, value: string, scale: number, name: string): string {
  return scale === 1 ? value : graph.node('Mul', [value, graph.float(scale)], name);
}
