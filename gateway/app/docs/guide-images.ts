/** Names of the guides' images, files in `docs/` of the repository. */
export const GUIDE_IMAGE = /^(?:[a-z][a-z-]{0,60}\.png|benchmarks\/[a-z][a-z-]{0,60}\.svg)$/;
