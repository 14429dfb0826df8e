import { type Layers, layersFor } from './layers.ts';
import { probeMachine } from './probe.ts';

let layers: Promise<Layers> | undefined;

/** The strongest layers that this machine supports, probed once per process. */
export function machineLayers(): Promise<Layers> {
  layers ??= probeMachine().then((probe) => layersFor('auto', probe));
  return layers;
}
