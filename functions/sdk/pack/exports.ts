/**
 * The package's `exports` in its two forms. Inside the clone they name the TypeScript source, which Node and the bundler run as it is.
 * Node runs no TypeScript below `node_modules`, so the packed package names what was compiled.
 */
export type Exports = Readonly<Record<string, string | { readonly types: string; readonly default: string }>>;

/** `./src/x.ts` as what is compiled from it; other entries as they are. */
export function packed(exports: Exports): Exports {
  return mapValues(exports, (entry) => {
    const name = typeof entry === 'string' ? /^\.\/src\/(.+)\.ts$/.exec(entry)?.[1] : undefined;
    return name === undefined ? entry : { types: `./dist/${name}.d.ts`, default: `./dist/${name}.js` };
  });
}

/** The inverse of {@link packed}. */
export function unpacked(exports: Exports): Exports {
  return mapValues(exports, (entry) => {
    const name = typeof entry === 'string' ? undefined : /^\.\/dist\/(.+)\.js$/.exec(entry.default)?.[1];
    return name === undefined ? entry : `./src/${name}.ts`;
  });
}

function mapValues(exports: Exports, map: (entry: Exports[string]) => Exports[string]): Exports {
  return Object.fromEntries(Object.entries(exports).map(([key, entry]) => [key, map(entry)]));
}
