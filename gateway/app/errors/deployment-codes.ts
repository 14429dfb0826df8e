import type { CodeEntry } from './code-entry.ts';

/** Refusals of a component or its manifest. Nothing was stored. */
export const DEPLOYMENT_CODES = {
  'not-wasm': {
    status: 422,
    title: 'The component is not WebAssembly',
    hint: 'Upload the .wasm file that `pie build` writes, or deploy the source with `pie deploy`.',
    explanation: 'The bytes do not start with the WebAssembly magic number.',
  },
  'core-module': {
    status: 422,
    title: 'A core module instead of a component',
    hint: 'Wrap the module into a component (`wasm-tools component new`), or build it with `pie build`.',
    explanation:
      'The bytes are a WebAssembly core module. Pie runs components: modules whose imports and exports are typed by the world pie:inferlet.',
  },
  'wrong-world': {
    status: 422,
    title: 'The component implements another world',
    hint: 'Target the world `inferlet` of the WIT in wit/: it exports `run: async func(input: string) -> result<string, string>` and imports only pie:inferlet.',
    explanation:
      'The component lacks the export `run`, or imports something that the platform does not offer (a file system, sockets, another version).',
  },
  'unsupported-component': {
    status: 422,
    title: 'The component is built in a way that the platform does not run',
    hint: 'Build it as one component with one core module that exports `run`, as `pie build` does, instead of composing several.',
    explanation:
      'The component is of the world `inferlet`, but the platform cannot link its core modules: the message says what stands in the way. Nothing was stored.',
  },
  'component-too-large': {
    status: 413,
    title: 'The component is too large',
    hint: 'Make it smaller: leave out data and engines that are not needed, strip names and debug information.',
    explanation:
      'The component exceeds the limit of this platform (64 MiB unless its operator set another). Nothing was stored.',
  },
  'build-failed': {
    status: 422,
    title: 'The component does not build',
    hint: 'Read the message; it names what was refused. A component that other tools accept and Pie does not is worth a bug report.',
    explanation: 'The component is valid, but translating or compiling it failed. Nothing was stored.',
  },
  'build-timeout': {
    status: 422,
    title: 'Building the component took too long',
    hint: 'Make the component smaller, or try again when the machine is less busy.',
    explanation:
      'Each component is built in a process of its own with limits on time and memory; this build exceeded them. Nothing was stored.',
  },
  'invalid-manifest': {
    status: 422,
    title: 'The manifest is not valid',
    hint: 'Compare the named field with the schema of pie.json: `/pie.schema.json` of this gateway, or `node_modules/pie/pie.schema.json`.',
    explanation:
      'The manifest (pie.json) breaks its schema, or names another function than the address does. Nothing was stored.',
  },
} as const satisfies Record<string, CodeEntry>;
