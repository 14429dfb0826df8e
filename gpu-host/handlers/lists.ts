import type { QueuedOperation } from '../protocol/operations.ts';

/** Length of the longest list that an operation carries or asks for. */
export function longestList(operation: QueuedOperation): number {
  switch (operation.op) {
    case 'allocate-pages':
    case 'allocate-embeds':
      return operation.count;
    case 'free-pages':
    case 'share-pages':
    case 'export-pages':
    case 'file-save':
      return operation.pages.length;
    case 'free-embeds':
      return operation.embeds.length;
    case 'copy-embeds':
      return longest(operation.sources, operation.destinations);
    case 'copy-tokens':
      return longest(operation.sources, operation.indices, operation.destinations, operation.positions);
    case 'embed-text':
      return longest(operation.tokens, operation.positions, operation.embeds);
    case 'embed-image':
      return longest(operation.positions, operation.embeds);
    case 'forward':
    case 'forward-scores':
      return longest(operation.inPages, operation.inEmbeds, operation.outPages, operation.outEmbeds);
    case 'log-probabilities':
      return operation.tokens.length;
    case 'step': {
      const { tokens, positions, inPages, outPages } = operation.request;
      return longest(tokens, positions, inPages, outPages);
    }
    case 'run':
      return longest(operation.request.pages, operation.request.stopTokens);
    default:
      return 0;
  }
}

function longest(...lists: readonly Uint32Array[]): number {
  return lists.reduce((most, list) => Math.max(most, list.length), 0);
}
