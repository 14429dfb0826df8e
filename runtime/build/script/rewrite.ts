import { type ExportSpecifier, type ImportDeclaration, type Node, parse } from 'acorn';

/**
 * The first line of a bundle that becomes a script (esbuild's `banner`). `rewrite` replaces it, so that all other places stay, and the bundle's
 * source map holds for the script.
 */
export const FIRST_LINE = '// pie:script';

/**
 * Turns a bundle, an ES module, into an expression that the engine evaluates: an asynchronous function of the engine's modules and of a function
 * that takes the exports. Imports move into the first line, exports behind the last; blanks stand in their places, so every other line and column
 * stays. Throws Error for statements that esbuild does not write into bundles.
 */
export function rewrite(code: string): string {
  if (!code.startsWith(`${FIRST_LINE}\n`)) throw new Error('the bundle has no first line of its own');
  let [head, tail, body, at] = ['(async function(__pie_import,__pie_export){"use strict";', '', '', FIRST_LINE.length];
  for (const node of parse(code, { ecmaVersion: 'latest', sourceType: 'module' }).body) {
    if (node.type === 'ImportDeclaration') head += importText(node);
    else if (node.type === 'ExportNamedDeclaration' && !node.declaration && !node.source)
      tail += `__pie_export({${node.specifiers.map(exportText).join(',')}});`;
    else if (node.type.startsWith('Export')) throw new Error(`a bundle cannot contain an ${node.type}`);
    else continue;
    body += code.slice(at, node.start) + blanks(code, node);
    at = node.end;
  }
  return `${head}${body}${code.slice(at)}\n${tail}})`;
}

const blanks = (code: string, { start, end }: Node): string => code.slice(start, end).replace(/[^\n]/g, ' ');

/** A name as the key of a property: an identifier, or any text between quotes. */
const key = (node: { type: string }): string =>
  JSON.stringify('name' in node ? node.name : (node as { value?: unknown }).value);

function importText({ source, specifiers }: ImportDeclaration): string {
  const from = `__pie_import(${JSON.stringify(source.value)})`;
  if (specifiers.length === 0) return `${from};`;
  let text = '';
  const named: string[] = [];
  for (const specifier of specifiers) {
    if (specifier.type === 'ImportNamespaceSpecifier') text += `const ${specifier.local.name}=${from};`;
    else {
      const imported = specifier.type === 'ImportDefaultSpecifier' ? '"default"' : key(specifier.imported);
      named.push(`${imported}:${specifier.local.name}`);
    }
  }
  return named.length === 0 ? text : `${text}const {${named.join(',')}}=${from};`;
}

const exportText = ({ exported, local }: ExportSpecifier): string =>
  `${key(exported)}:${'name' in local ? local.name : key(local)}`;
