/** Names of the guides' pictures, files in `docs/` of the repository. */
export const PICTURE = /^(?:[a-z][a-z-]{0,60}\.png|benchmarks\/[a-z][a-z-]{0,60}\.svg)$/;
