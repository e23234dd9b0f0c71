"""Lambda on a laptop: the Runtime API, execution environments and a function URL. Nothing here ships."""
