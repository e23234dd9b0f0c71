def handler(:
