import type { CallReference, ContractReference, InterfaceReference, TypeReference } from '#wit/generate/reference.ts';
import { escapeHtml, page, prose } from './html.ts';

/** The contract of inferlets: every interface, type and call. */
export function inferletPage(reference: ContractReference): string {
  const rows = reference.interfaces.map(
    (entry) =>
      `<tr><td><a href="#${entry.name}"><code>${entry.name}</code></a></td><td>${prose(entry.needs)}</td></tr>`,
  );
  return page(
    'Inferlets – Pie API',
    `<h1>${escapeHtml(reference.package)} <span class="muted">${escapeHtml(reference.version)}</span></h1>
<p>${prose(reference.docs)} TypeScript inferlets have <code>@pie/inferlet</code> over it, and <code>@pie/inferlet/raw</code>; inferlets in C include <code>pie.h</code>, and those in Rust use the crate <code>pie</code>.</p>
<p>${prose(reference.introduction)}</p>
<table><thead><tr><th>Interface</th><th>Needs</th></tr></thead><tbody>${rows.join('\n')}</tbody></table>
<h2>What an inferlet exports</h2>
${reference.exports.map(callHtml).join('\n')}
${reference.interfaces.map(interfaceHtml).join('\n')}`,
  );
}

const interfaceHtml = ({ name, docs, needs, types, calls }: InterfaceReference): string =>
  `<h2 id="${name}">${name}</h2>
<p>${prose(docs)}</p>
<p class="muted">${prose(needs)}</p>
${types.map(typeHtml).join('\n')}
${calls.map(callHtml).join('\n')}`;

function typeHtml({ kind, name, docs, members }: TypeReference): string {
  const rows = members.map(
    (member) =>
      `<tr><td><code>${escapeHtml(member.name)}</code></td><td>${member.type ? `<code>${escapeHtml(member.type)}</code>` : ''}</td><td>${prose(member.docs)}</td></tr>`,
  );
  return `<details><summary><span class="method">${kind}</span> <span class="path">${escapeHtml(name)}</span></summary>
${docs ? `<p>${prose(docs)}</p>` : ''}${rows.length > 0 ? `<table><tbody>${rows.join('')}</tbody></table>` : ''}</details>`;
}

const callHtml = ({ name, signature, docs, cost, errors, errorsTitle, c }: CallReference): string =>
  `<details><summary><span class="path">${escapeHtml(name)}</span></summary>
<pre><code>${escapeHtml(signature)}</code></pre>
${docs ? `<p>${prose(docs)}</p>` : ''}<p class="muted">${escapeHtml(cost)}${errors.length > 0 ? ` ${errorsTitle}: ${errors.map((error) => `<code>${escapeHtml(error)}</code>`).join(', ')}.` : ''} C: <code>${c}</code>.</p></details>`;
