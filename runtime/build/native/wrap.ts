import { componentEmbed, componentNew } from '@bytecodealliance/jco-transpile/wasm-tools';
import { contractText } from '../component/contract.ts';

/** Makes a core module with the contract's imports and exports into a component. @throws wit-component's error for any other module */
export async function wrapModule(module: Uint8Array): Promise<Uint8Array> {
  const embedded = await componentEmbed({ binary: module, witSource: await contractText(), world: 'inferlet' });
  return componentNew(embedded, []);
}
