"""A slow link, measured: Flower's SuperLink and SuperNodes in network namespaces with a limited rate."""
